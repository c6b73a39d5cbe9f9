# Puts the files of a folder into a program: attend_embed(TARGET FOLDER) adds a source file to the target that defines
# assets() of assets.h. The assembler copies the bytes, so that megabytes cost no compile time; the order is by name.
function(attend_embed target folder)
  file(GLOB_RECURSE files RELATIVE ${folder} ${folder}/*)
  list(FILTER files EXCLUDE REGEX "(^|/)\\.")
  list(SORT files)
  set(blocks "")
  set(names "")
  set(table "")
  set(paths "")
  set(number 0)
  attend_watch(${folder})
  foreach(file IN LISTS files)
    list(APPEND paths ${folder}/${file})
    get_filename_component(inner ${folder}/${file} DIRECTORY)
    attend_watch(${inner})
    string(APPEND blocks
      "asm(\".section .rodata,\\\"a\\\"\\n.balign 16\\nattend_asset_${number}:\\n\"\n"
      "    \".incbin \\\"${folder}/${file}\\\"\\n\"\n"
      "    \"attend_asset_${number}_end:\\n.byte 0\\n.previous\\n\");\n")
    string(APPEND names "extern const char attend_asset_${number}[], attend_asset_${number}_end[];\n")
    string(APPEND table "      {\"/${file}\", {attend_asset_${number}, size_of(attend_asset_${number}, "
                        "attend_asset_${number}_end)}},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/embedded.cc @ONLY CONTENT
"// Made by embed.cmake.
#include <cstddef>

#include \"explorer/assets.h\"

@blocks@
extern \"C\" {
@names@}

namespace attend::explorer {

static std::size_t size_of(const char* begin, const char* end) { return static_cast<std::size_t>(end - begin); }

std::span<const Asset> assets() {
  static const Asset all[] = {
@table@  };
  return all;
}

}  // namespace attend::explorer
")
  set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/embedded.cc PROPERTIES OBJECT_DEPENDS "${paths}")
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded.cc)
endfunction()
