// Writes the models with planted heads as model folders for the tests of the page:
//   page_planted_models FOLDER   ->   FOLDER/{induction,copy,later,hebrew,quiet,cross,offsets}
// copy is induction once more, later the same shape with another head, hebrew reads Hebrew letters in place of a, b, ...
// They read letters: pad, unknown, bos and eos are the ids 0 to 3, so a is 4, b is 5 (the cue) and d is 7 (the answer).
#include <cstdio>
#include <filesystem>
#include <string>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "attend/tokenizer.h"
#include "reference/planted_models.h"

namespace {

using namespace attend;

std::string latin(std::int64_t i) { return {static_cast<char>('a' + i)}; }
std::string hebrew(std::int64_t i) { return {'\xd7', static_cast<char>(0x90 + i)}; }  // U+05D0 and on

void write(const std::filesystem::path& folder, const Model& model, std::string (*letter)(std::int64_t) = latin) {
  const TransformerConfig& config = model.config();
  const std::int64_t vocabulary = config.decoder ? config.decoder->vocabulary : config.encoder->vocabulary;
  std::string letters;
  for (std::int64_t id = 4; id < vocabulary; ++id) letters += letter(id - 4);
  const auto tokenizer = train_character(CharacterOptions{}, letters);
  Task task;
  task.kind = config.encoder && config.decoder ? Task::Kind::translate : Task::Kind::generate;
  task.source_end = false;
  if (task.kind == Task::Kind::translate) task.languages = {"letters", "echo"};
  save_model_folder(folder, model, config.encoder ? tokenizer.get() : nullptr,
                    config.decoder ? tokenizer.get() : nullptr, task);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: page_planted_models FOLDER\n");
    return 2;
  }
  try {
    const std::filesystem::path folder = arguments[1];
    write(folder / "induction", reference::planted_induction().model);
    write(folder / "copy", reference::planted_induction().model);
    reference::InductionModel later = reference::planted_induction();
    // The head that looked at the token before it looks at all alike.
    reference::Planter plant(later.model);
    plant.match(later.previous, later.vocabulary, later.vocabulary, later.positions, 1, 0, -1);
    plant.finish();
    write(folder / "later", later.model);
    write(folder / "hebrew", reference::planted_induction().model, hebrew);
    write(folder / "quiet", reference::planted_quiet().model);
    write(folder / "cross", reference::planted_cross().model);
    write(folder / "offsets", reference::planted_offsets().model);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
