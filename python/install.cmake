# SPDX-License-Identifier: MIT
# The component python of `cmake --install`: the package alone, which uses the libraries of the component runtime; in a wheel it has the
# libraries and the command in it.
if(ATTN_INSTALL)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    install(FILES libattn/${source} DESTINATION ${ATTN_PYTHON_FOLDER}/${folder} COMPONENT python)
  endforeach()
  install(FILES ${ATTN_PYTHON_TREE}/_abi.py DESTINATION ${ATTN_PYTHON_FOLDER} COMPONENT python)
endif()

set(ATTN_PYTHON_RPATH "$ORIGIN/lib")
foreach(name attn attn_io attn_layers)
  if(ATTN_WHEEL)
    install(TARGETS ${name}_shared LIBRARY DESTINATION ${ATTN_PYTHON_FOLDER}/lib COMPONENT python)
  elseif(ATTN_INSTALL)
    # lib/ has links to the installed libraries, so _native.py need not search.
    cmake_path(ABSOLUTE_PATH ATTN_PYTHON_FOLDER BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE folder)
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${folder} OUTPUT_VARIABLE libdir)
    set(ATTN_PYTHON_RPATH "$ORIGIN/${libdir}")
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/links)
    file(CREATE_LINK ../${libdir}/lib${name}.so.${ATTN_ABI} ${CMAKE_CURRENT_BINARY_DIR}/links/lib${name}.so SYMBOLIC)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/links/lib${name}.so DESTINATION ${ATTN_PYTHON_FOLDER}/lib COMPONENT python)
  endif()
endforeach()

if(ATTN_WHEEL AND ATTN_CLI)
  set_target_properties(attn PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS attn RUNTIME DESTINATION ${ATTN_PYTHON_FOLDER}/bin COMPONENT python)
  install(PROGRAMS attn.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME attn COMPONENT python)
endif()

function(attn_python_install_extension target)
  if(ATTN_INSTALL)
    install(TARGETS ${target} LIBRARY DESTINATION ${ATTN_PYTHON_FOLDER} COMPONENT python)
  endif()
endfunction()
