// --output FILE of the inspecting commands: what is written is told by the ending.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "attend/pictures.h"
#include "command_line.h"

namespace attend::cli {

struct InspectionFiles {
  std::vector<std::string> names;
  std::string picture, measure, theme = "light", language = "en", title;
  std::int64_t query = -1;
  double scale = 2;
  bool logarithmic = false;

  void add_to(Command& command);
  bool any() const { return !names.empty(); }
  // Whether a file shows values of edges; the others show what rows and heads tell.
  bool want_matrices() const;
  // Whether a file has one of these endings (".rows.csv").
  bool has(std::initializer_list<const char*> endings) const;
  // Error(argument): an ending that is not known, one name for several subjects, a file that is nothing without matrices, or
  // without attention.
  void check(std::size_t subjects, bool matrices = true, bool attention = true) const;
  // Writes every file; `{}` in a name stands for the subject's number, from 1. A line for each: its name and what it shows.
  std::vector<std::string> write(const Inspection& inspection, std::size_t subject) const;

 private:
  struct Picture {
    std::string svg, shows;
  };
  Picture draw(const Inspection& inspection, const PictureOptions& options) const;
  void check_holds_attention(const std::string& name, bool attention) const;
};

// "我喜欢学习中文。": a text as people read it.
std::string running_text(const ShownText& text);

}  // namespace attend::cli
