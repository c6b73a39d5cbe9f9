// Text in, text out: translates the lines of the standard input with a model folder, and prints for every token of the
// translation the source token it read most.
//   text_to_text MODEL_FOLDER < lines
#include <iostream>
#include <string>

#include <attend/error.h>
#include <attend/translate.h>

int main(int count, char** arguments) try {
  if (count != 2) {
    std::cerr << "usage: text_to_text MODEL_FOLDER < lines\n";
    return 2;
  }
  const attend::ModelFolder folder = attend::load_model_folder(arguments[1]);
  const attend::Translator translator(folder);
  attend::TranslateOptions options;
  options.align = true;
  for (std::string line; std::getline(std::cin, line); ++options.first_line) {
    const attend::Translation result = translator.translate(line, options);
    std::cout << line << " -> " << result.text() << '\n';
    const auto& ids = result.hypotheses.front().tokens.ids;
    for (std::size_t token = 0; token < ids.size(); ++token) {
      std::size_t most = 0;
      for (std::size_t key = 1; key < result.source_ids.size(); ++key)
        if (result.weight(token, key) > result.weight(token, most)) most = key;
      std::cout << "  " << translator.target().readable(ids[token]) << " <- "
                << translator.source().readable(result.source_ids[most]) << " (" << result.weight(token, most) << ")\n";
    }
  }
} catch (const attend::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
