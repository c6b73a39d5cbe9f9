# Tests that run whole programs: the command line, the explorer's server, and a project that uses the installed package.
add_executable(program_cli_tests programs/cli_test.cc programs/inspection_faults_test.cc programs/attribution_test.cc)
target_link_libraries(program_cli_tests PRIVATE attend_options PkgConfig::json GTest::gtest_main)
target_compile_definitions(program_cli_tests PRIVATE
  ATTEND_PROGRAM="$<TARGET_FILE:attend-cli>" ATTEND_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(program_cli_tests attend-cli)
gtest_discover_tests(program_cli_tests TEST_PREFIX program/cli: DISCOVERY_MODE PRE_TEST)

add_executable(program_inspect_tests programs/inspect_test.cc)
target_include_directories(program_inspect_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(program_inspect_tests PRIVATE attend_options PkgConfig::json EXPAT::EXPAT GTest::gtest_main)
target_compile_definitions(program_inspect_tests PRIVATE
  ATTEND_PROGRAM="$<TARGET_FILE:attend-cli>" ATTEND_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(program_inspect_tests attend-cli)
gtest_discover_tests(program_inspect_tests TEST_PREFIX program/inspect: DISCOVERY_MODE PRE_TEST)

# One program in all tests of the server: they run as one, so that it is started once.
add_executable(program_explorer_tests programs/explorer_test.cc)
target_link_libraries(program_explorer_tests PRIVATE attend_options PkgConfig::json GTest::gtest_main)
target_compile_definitions(program_explorer_tests PRIVATE
  ATTEND_PROGRAM="$<TARGET_FILE:attend-cli>" ATTEND_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(program_explorer_tests attend-cli)
add_test(NAME program/explorer COMMAND program_explorer_tests)

add_test(NAME program/prepare COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/programs/prepare_test.sh ${PROJECT_SOURCE_DIR})

# Sanitizers would have to be linked into the example, too.
if(NOT ATTEND_SANITIZE)
add_test(NAME install/find_package
  COMMAND ${CMAKE_COMMAND}
    -D source=${PROJECT_SOURCE_DIR} -D build=${PROJECT_BINARY_DIR} -D work=${PROJECT_BINARY_DIR}/install-test
    -D generator=${CMAKE_GENERATOR} -D compiler=${CMAKE_CXX_COMPILER}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/install/find_package.cmake)

# What the sanitizers say of the rooms that read hostile text and run threads; see the script.
function(add_sanitizer_test name sanitize)
  add_test(NAME sanitizers/${name}
    COMMAND ${CMAKE_COMMAND}
      -D source=${PROJECT_SOURCE_DIR} -D work=${PROJECT_BINARY_DIR}/sanitizers/${name}
      -D generator=${CMAKE_GENERATOR} -D compiler=${CMAKE_CXX_COMPILER}
      -D sanitize=${sanitize} "-Dprograms=${ARGN}"
      -P ${CMAKE_CURRENT_SOURCE_DIR}/sanitizers/quick.cmake)
endfunction()
add_sanitizer_test(address "address,undefined" unit_core_tests unit_text_tests property_text_tests)
add_sanitizer_test(thread "thread" unit_core_tests)
endif()
