# Lists of files that follow the folders they lie in. A folder's time changes when a file comes or goes, and CMake then runs
# again. file(GLOB ... CONFIGURE_DEPENDS) would look at every build instead, and make `ninja -n` say that there is work to
# do when there is none.
function(attend_watch)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})  # repeated ones do no harm
endfunction()

# attend_glob(VARIABLE FOLDER PATTERN): the files of a folder that match, with their paths.
function(attend_glob variable folder pattern)
  file(GLOB found ${folder}/${pattern})
  attend_watch(${folder})
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
