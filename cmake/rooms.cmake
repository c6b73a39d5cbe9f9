# A room is one folder under src/ and one CMake target. It can include only its own headers and those of the rooms
# it depends on, because nothing else is on its include path: a wrong include does not compile.
#
#   attend_room(text DEPENDS core PUBLIC_HEADERS tokenizer.h SOURCES characters.cc LIBRARIES PkgConfig::sentencepiece)
#
# PUBLIC_HEADERS are names under include/attend/; LIBRARIES are private third-party targets. COLD are those of the SOURCES
# that read, write and check what people see: with less optimisation they are as fast as anyone can tell, and compile in
# three quarters of the time.

set(ATTEND_ROOMS "" CACHE INTERNAL "")
set(ATTEND_LIBRARIES "" CACHE INTERNAL "")

add_library(attend_options INTERFACE)
target_compile_options(attend_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(ATTEND_DEVELOPER)
  target_compile_options(attend_options INTERFACE -Werror)
endif()
if(ATTEND_SANITIZE)
  target_compile_options(attend_options INTERFACE -fsanitize=${ATTEND_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(attend_options INTERFACE -fsanitize=${ATTEND_SANITIZE})
  # g++ 12 takes what its own instrumentation adds to Highway's vectors for uses of values that were never set.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(attend_options INTERFACE -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
endif()

function(attend_room room)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;PUBLIC_HEADERS;SOURCES;COLD;LIBRARIES" ${ARGN})

  # One include root a room, holding a link to its folder and to its public headers, and nothing of any other room.
  set(root ${PROJECT_BINARY_DIR}/rooms/${room})
  file(REMOVE_RECURSE ${root})
  file(MAKE_DIRECTORY ${root}/attend)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${room} ${root}/${room} SYMBOLIC)
  foreach(header IN LISTS ROOM_PUBLIC_HEADERS)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include/attend/${header} ${root}/attend/${header} SYMBOLIC)
  endforeach()

  add_library(attend_${room} STATIC ${ROOM_SOURCES})
  set_property(SOURCE ${ROOM_COLD} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
  target_include_directories(attend_${room} PUBLIC ${root})
  target_link_libraries(attend_${room} PRIVATE attend_options ${ROOM_LIBRARIES})
  foreach(below IN LISTS ROOM_DEPENDS)
    target_link_libraries(attend_${room} PUBLIC attend_${below})
  endforeach()

  set(ATTEND_ROOMS ${ATTEND_ROOMS} ${room} CACHE INTERNAL "")
  set(ATTEND_LIBRARIES ${ATTEND_LIBRARIES} ${ROOM_LIBRARIES} CACHE INTERNAL "")
endfunction()

# The library that is installed: all rooms in one archive, seen only through include/attend.
function(attend_library)
  set(objects)
  foreach(room IN LISTS ATTEND_ROOMS)
    list(APPEND objects $<TARGET_OBJECTS:attend_${room}>)
  endforeach()
  add_library(attend ${objects})
  add_library(attend::attend ALIAS attend)
  set_target_properties(attend PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(attend PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(attend PUBLIC cxx_std_20)
  # A header-only library is inside the archive already: whoever links it need not have it.
  list(REMOVE_DUPLICATES ATTEND_LIBRARIES)
  list(REMOVE_ITEM ATTEND_LIBRARIES PkgConfig::json PkgConfig::eigen)
  target_link_libraries(attend PRIVATE $<BUILD_INTERFACE:attend_options> ${ATTEND_LIBRARIES})

  include(CMakePackageConfigHelpers)
  install(TARGETS attend EXPORT attend-targets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attend DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT attend-targets NAMESPACE attend:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attend)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/attend-config.cmake.in
    ${PROJECT_BINARY_DIR}/attend-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attend)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/attend-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/attend-config.cmake ${PROJECT_BINARY_DIR}/attend-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attend)
endfunction()
