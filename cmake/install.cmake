# SPDX-License-Identifier: MIT
# What `cmake --install` leaves behind: both libraries, shared and static, their headers, pkg-config files and a CMake package.
# (The command and its man page: cli/CMakeLists.txt.)  Everything is found relative to where it lies, so a prefix can be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/libattn)

# What a program that links libattn.a needs besides: the thread runtime, by name, so that the program's own compiler finds it.
set(openmp_link "")
if(ATTN_OPENMP)
  foreach(name ${OpenMP_C_LIB_NAMES})
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
      cmake_path(GET OpenMP_${name}_LIBRARY PARENT_PATH folder)
      list(APPEND openmp_link -L${folder})
    endif()
    list(APPEND openmp_link -l${name})
  endforeach()
  list(REMOVE_DUPLICATES openmp_link)
endif()
set_property(TARGET attn_static APPEND PROPERTY INTERFACE_LINK_LIBRARIES "$<INSTALL_INTERFACE:${openmp_link}>")

set_target_properties(attn_shared PROPERTIES EXPORT_NAME attn)
install(TARGETS attn_shared attn_static EXPORT libattn-targets)
install(FILES include/attn/attn.h include/attn/types.h include/attn/relative.h include/attn/modifier.h include/attn/analysis.h include/attn/mask.h include/attn/position.h include/attn/cache.h include/attn/linear.h include/attn/hopfield.h include/attn/bilinear.h include/attn/cost.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn)
install(EXPORT libattn-targets NAMESPACE attn:: DESTINATION ${package_dir})

# The static libattn_io has an export of its own: only it needs cJSON and libzip to be found.
if(ATTN_IO)
  set_target_properties(attn_io_shared PROPERTIES EXPORT_NAME attn_io)
  set_target_properties(attn_io_shared PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS attn_io_shared EXPORT libattn-targets)
  install(TARGETS attn_io_static EXPORT libattn-io-static-targets)
  install(FILES include/attn/io.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn)
  install(EXPORT libattn-io-static-targets NAMESPACE attn:: DESTINATION ${package_dir})
endif()

if(ATTN_LAYERS)
  set_target_properties(attn_layers_shared PROPERTIES EXPORT_NAME attn_layers INSTALL_RPATH "$ORIGIN")
  install(TARGETS attn_layers_shared EXPORT libattn-targets)
  install(TARGETS attn_layers_static EXPORT libattn-layers-static-targets)
  install(FILES include/attn/layers.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn)
  install(EXPORT libattn-layers-static-targets NAMESPACE attn:: DESTINATION ${package_dir})
endif()

configure_package_config_file(cmake/libattn-config.cmake.in ${PROJECT_BINARY_DIR}/libattn-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/libattn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/libattn-config.cmake ${PROJECT_BINARY_DIR}/libattn-config-version.cmake DESTINATION ${package_dir})

# pkg-config: paths relative to the .pc file, unless the installer gave absolute folders.
function(attn_install_pkgconfig name)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE pc_libdir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE pc_includedir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_prefix)
  list(JOIN openmp_link " " pc_openmp)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
attn_install_pkgconfig(libattn)
if(ATTN_IO)
  attn_install_pkgconfig(libattn_io)
endif()
if(ATTN_LAYERS)
  attn_install_pkgconfig(libattn_layers)
endif()
