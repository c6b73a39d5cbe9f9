#include "subject_options.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "attend/error.h"
#include "input_output.h"

namespace attend::cli {

void SubjectFlags::add_to(Command& command) {
  command.add_option("texts", texts, "Texts: sources of a translator, else what the model reads")->type_name("TEXT");
  command.add_option("--model,-m", model, "Model folder, or the name of a model that ships")->show_default();
  command.add_option("--target,-t", target, "Target text of a translator (default: what it writes itself, greedily)");
  command.add_option("--to", to, "Language wanted of a translator (default: told by the script of the source)");
  command.add_option("--file,-f", file,
                     "Read texts from a file, one a line; -: standard input. A line with a tab is source and target");
  add_read_options(command, read_options);
}

std::vector<SubjectTexts> SubjectFlags::read(const ModelFolder& folder) const {
  const TransformerConfig& config = folder.model.config();
  const bool pair = config.encoder && config.decoder;
  std::vector<SubjectTexts> all;
  const auto add = [&](const std::string& line, bool may_have_target) {
    SubjectTexts subject;
    subject.language = to;
    if (!pair) {
      subject.text = line;
    } else {
      const std::size_t tab = may_have_target ? line.find('\t') : std::string::npos;
      subject.source = line.substr(0, tab);
      if (tab != std::string::npos) subject.target = line.substr(tab + 1);
    }
    all.push_back(std::move(subject));
  };
  for (const std::string& text : texts)
    add(checked_argument(text, pair ? "source" : "text", read_options.replace_invalid), false);
  if (!file.empty()) {
    LineReader reader(file, read_options);
    for (std::string line; reader.next(line);) {
      if (const auto tabs = std::count(line.begin(), line.end(), '\t'); pair && tabs > 1)
        throw Error(ErrorKind::text, join(file == "-" ? "standard input" : file, ":", reader.number()),
                    join("has ", tabs, " tabs"), "a line is a source, or a source, a tab and a target");
      if (!line.empty()) add(line, true);
    }
  }
  if (all.empty()) throw Error(ErrorKind::argument, "texts", "there is none", "give a text, or --file FILE");
  if (!target.empty()) {
    if (!pair) throw Error(ErrorKind::argument, "--target", "this model has one text only", "leave it out");
    if (all.size() > 1)
      throw Error(ErrorKind::argument, "--target", join("is given for ", all.size(), " sources"),
                  "give one source, or a --file of source, tab, target");
    all.front().target = checked_argument(target, "--target", read_options.replace_invalid);
  }
  return all;
}

void warn_of_unknown(const Subject& subject) {
  for (const auto& [name, pieces] :
       {std::pair("source", &subject.source), std::pair(subject.source.empty() ? "text" : "target", &subject.target)}) {
    const auto unknown = std::count_if(pieces->begin(), pieces->end(),
                                       [](const Piece& piece) { return piece.role == TokenRole::unknown; });
    if (unknown > 0)
      std::cerr << "attend: " << name << ": " << unknown << " of "
                << counted(static_cast<std::int64_t>(pieces->size()), "token")
                << " stand for text that the vocabulary does not have\n";
  }
}

}  // namespace attend::cli
