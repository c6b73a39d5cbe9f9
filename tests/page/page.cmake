# Tests of the explorer's page: its words and its build, and the page itself in a real browser against the real server. They
# need Node 18 or newer, npm and Chromium (./test installs them); the packages of package-lock.json are fetched once.
find_program(ATTEND_NODE node)
if(NOT ATTEND_NODE)
  message(STATUS "no node: the tests of the explorer's page are left out")
  return()
endif()

add_test(NAME page:packages COMMAND ${CMAKE_CURRENT_LIST_DIR}/packages.sh ${PROJECT_SOURCE_DIR}/app/explorer/page)
set_tests_properties(page:packages PROPERTIES FIXTURES_SETUP page_packages TIMEOUT 600)

foreach(topic words build)
  add_test(NAME page:${topic} COMMAND ${ATTEND_NODE} --test ${CMAKE_CURRENT_LIST_DIR}/${topic}_test.mjs)
  set_tests_properties(page:${topic} PROPERTIES FIXTURES_REQUIRED page_packages TIMEOUT 300)
endforeach()

if(TARGET attend_explorer)
  add_executable(page_planted_models ${CMAKE_CURRENT_LIST_DIR}/planted_models.cc)
  target_link_libraries(page_planted_models PRIVATE attend_explorer attend_options)
  target_include_directories(page_planted_models PRIVATE ${PROJECT_SOURCE_DIR}/tests
    $<TARGET_PROPERTY:attend_core,INTERFACE_INCLUDE_DIRECTORIES>)
  foreach(topic workbench learn room races planted long hostile everyone)
    add_test(NAME page:${topic} COMMAND ${ATTEND_NODE} --test ${CMAKE_CURRENT_LIST_DIR}/${topic}_test.mjs)
    # A browser and a server that computes: two processors, and nothing beside it that would spoil the measured times.
    set_tests_properties(page:${topic} PROPERTIES FIXTURES_REQUIRED page_packages TIMEOUT 1500 RUN_SERIAL TRUE
      ENVIRONMENT "ATTEND=$<TARGET_FILE:attend-cli>;PLANTED=$<TARGET_FILE:page_planted_models>")
  endforeach()
endif()
