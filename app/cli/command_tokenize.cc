#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/tokenizer.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tatoeba-zh-en", tokenizer;
  InputOptions input;
  bool ids = false, decode = false, target = false;
};

std::vector<std::int32_t> parse_ids(const std::string& line, const std::string& place) {
  std::vector<std::int32_t> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  while (at < end) {
    if (*at == ' ' || *at == '\t') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [after, code] = std::from_chars(at, end, id);
    if (code != std::errc() || (after < end && *after != ' ' && *after != '\t'))
      throw Error(ErrorKind::text, place, join("'", std::string(at, std::min(end, at + 12)), "' is not a token id"),
                  "ids are whole numbers with blanks between them");
    ids.push_back(id);
    at = after;
  }
  return ids;
}

void run(const Options& options, const Globals& globals) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) {
    tokenizer = load_tokenizer(options.tokenizer);
  } else {
    const ModelFolder folder = load_model_folder(find_model(options.model));
    tokenizer = options.target || !folder.source ? folder.target : folder.source;
    if (!tokenizer) throw Error(ErrorKind::argument, options.model, "the model reads no text, so it has no tokenizer");
  }
  Output out;
  options.input.each_batch(1024, [&](const LineBatch& batch) {
    for (std::size_t i = 0; i < batch.lines.size(); ++i) {
      const std::string& line = batch.lines[i];
      const std::int64_t number = batch.first + static_cast<std::int64_t>(i);
      const std::vector<std::int32_t> ids =
          options.decode ? parse_ids(line, batch.place(number)) : tokenizer->encode(line);
      if (globals.json) {
        Json pieces = Json::array();
        for (const std::int32_t id : ids) pieces.push_back(tokenizer->piece(id));
        Json result = Json::object();
        if (batch.named) result["file"] = batch.name;
        result["line"] = number;
        result["text"] = options.decode ? tokenizer->decode(ids) : line;
        result["ids"] = ids;
        result["pieces"] = std::move(pieces);
        out.json(result);
      } else if (options.decode) {
        out.line(shown(tokenizer->decode(ids)));
      } else {
        std::string row;
        for (const std::int32_t id : ids) {
          if (!row.empty()) row += ' ';
          row += options.ids ? std::to_string(id) : tokenizer->piece(id);
        }
        out.line(shown(row));
      }
    }
    out.flush();
  });
  out.flush();
}

}  // namespace

void add_tokenize(Command& program, Globals& globals) {
  Command* command = program.add_command("tokenize", "Cut text into the tokens of a model, or join them again");
  auto options = std::make_shared<Options>();
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "Tokenizer folder or SentencePiece .model file instead of a model's")
      ->type_name("PATH");
  command->add_flag("--target", options->target, "The decoder's tokenizer, where it is another than the encoder's");
  command->add_flag("--ids", options->ids, "Print ids instead of pieces");
  command->add_flag("--decode", options->decode, "Read ids, print text");
  options->input.add_to(*command, "Files of lines; - or none: standard input");
  command->footer(
      "Examples:\n"
      "  echo 我喜欢学习。 | attend tokenize\n"
      "  attend tokenize --ids < text.txt | attend tokenize --decode");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
