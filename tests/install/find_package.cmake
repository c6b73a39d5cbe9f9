# Installs the build into a folder of its own, builds example/text-to-text against it with find_package, and runs it and
# the installed program on the model that ships.
function(must name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${name} failed (${code}):\n${out}\n${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${work})
must("install" ${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix)
must("configure" ${CMAKE_COMMAND} -S ${source}/example/text-to-text -B ${work}/example -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${work}/prefix)
must("build" ${CMAKE_COMMAND} --build ${work}/example)

file(WRITE ${work}/line.txt "我喜欢学习中文。\n")
must("run the example" bash -c
  "'${work}/example/text_to_text' '${work}/prefix/share/attend/weights/tatoeba-zh-en' < '${work}/line.txt'")
if(NOT output MATCHES "我喜欢学习中文。 -> [A-Z].* <- ")
  message(FATAL_ERROR "the example printed: ${output}")
endif()
must("complete a word with the installed script" bash -c
  "source '${work}/prefix/share/bash-completion/completions/attend'; COMP_WORDS=(attend transl); COMP_CWORD=1; _attend; [[ $COMPREPLY == translate ]]")
must("run the installed program" ${work}/prefix/bin/attend translate ${work}/line.txt)
if(NOT output MATCHES "^[A-Z]")
  message(FATAL_ERROR "the installed program printed: ${output}")
endif()
