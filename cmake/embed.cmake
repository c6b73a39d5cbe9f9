# Turns files into arrays of a C++ source, so that a program carries them with it:
#   cmake -D "files=page.css;page.js" -D output=assets.cc -D namespace=attend::pictures -P embed.cmake
# page.css becomes `extern const std::string_view page_css`.
set(source "// Made by cmake/embed.cmake.\n#include <string_view>\n\nnamespace ${namespace} {\n")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
  string(APPEND source "static const unsigned char ${name}_bytes[] = {\n${bytes}};\n"
    "extern const std::string_view ${name};\n"
    "const std::string_view ${name}(reinterpret_cast<const char*>(${name}_bytes), sizeof ${name}_bytes);\n")
endforeach()
string(APPEND source "}  // namespace ${namespace}\n")
file(WRITE ${output} "${source}")
