# Builds the rooms that handle hostile text and threads once more with sanitizers and passes their tests: quick enough
# for every run. The whole tree is checked by `cmake --preset asan` and `cmake --preset tsan`.
#   -D source=FOLDER -D work=FOLDER -D generator=NAME -D compiler=PROGRAM -D sanitize=LIST -D programs=LIST
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN} failed (${code}):\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} -S ${source} -B ${work} -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
    -D CMAKE_BUILD_TYPE=RelWithDebInfo -D ATTEND_SANITIZE=${sanitize} -D ATTEND_DEVELOPER=ON)
run(${CMAKE_COMMAND} --build ${work} --target ${programs})
foreach(program IN LISTS programs)
  run(${work}/tests/${program} --gtest_brief=1)
endforeach()
