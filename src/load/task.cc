#include <algorithm>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "model/json_fields.h"

namespace attend {
namespace {

// The structured binding names every member: a member added to the struct does not compile until it is in the table.
std::vector<Field> fields_of(Task& task) {
  auto& [kind, languages, target_tags, source_begin, source_end, lines, classes, image_height, image_width, patch] =
      task;
  return {
      {"kind",
       choice(kind, {{Task::Kind::translate, "translate"},
                     {Task::Kind::generate, "generate"},
                     {Task::Kind::classify, "classify"}}),
       "what the model is for"},
      {"languages", &languages, "languages it knows"},
      {"target_tags", &target_tags, "piece put before the source for each target language"},
      {"source_begin", &source_begin, "whether a source starts with bos"},
      {"source_end", &source_end, "whether a source ends with eos"},
      {"lines", &lines, "whether generated sequences start with bos and end with eos"},
      {"classes", &classes, "names of the classes"},
      {"image_height", &image_height, "pixels; 0: the input is no image"},
      {"image_width", &image_width, "pixels; 0: the input is no image"},
      {"patch", &patch, "pixels on the side of a square patch; 0: the input is no image"},
  };
}

[[noreturn]] void refuse(const std::string& field, const std::string& what) {
  throw Error(ErrorKind::config, "task." + field, what);
}

}  // namespace

void check(const Task& task) {
  if (task.languages.size() == 1)
    refuse("languages", join("names only ", task.languages[0], ", expected none, or two and more"));
  for (std::size_t i = 0; i < task.languages.size(); ++i)
    if (std::find(task.languages.begin(), task.languages.begin() + static_cast<std::ptrdiff_t>(i), task.languages[i]) !=
        task.languages.begin() + static_cast<std::ptrdiff_t>(i))
      refuse("languages", join("names ", task.languages[i], " twice"));
  for (const auto& [language, tag] : task.target_tags) {
    if (std::find(task.languages.begin(), task.languages.end(), language) == task.languages.end())
      refuse("target_tags", join("has a tag for ", language, ", which is not among languages"));
    if (tag.empty()) refuse("target_tags", join("has an empty tag for ", language));
  }
  if (task.kind == Task::Kind::classify && task.classes.empty())
    refuse("classes", "is empty, expected a name for each class");
  const bool image = task.image_height || task.image_width || task.patch;
  if (image && (task.patch < 1 || task.image_height < 1 || task.image_width < 1 || task.image_height % task.patch ||
                task.image_width % task.patch))
    refuse("patch", join("is ", task.patch, ", expected a divisor of image_height ", task.image_height,
                         " and image_width ", task.image_width));
}

std::string to_json(const Task& task) {
  Task copy = task;  // the table binds to members that could be written
  return write_fields(fields_of(copy));
}

Task task_from_json(const std::string& text, const std::string& source) {
  Task task;
  read_fields(text, source, fields_of(task));
  try {
    check(task);
  } catch (const Error& error) {
    throw Error(error.kind(), source + ": " + error.where().substr(error.where().find('.') + 1), error.what_happened(),
                error.advice());
  }
  return task;
}

}  // namespace attend
