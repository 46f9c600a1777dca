# SPDX-License-Identifier: MIT
# The CMake package that `cmake --install` installs.  (Each library, its headers and its pkg-config file: cmake/library.cmake; the
# command and its man page: cli/CMakeLists.txt.)  All paths are relative, so a prefix can be moved.  Components, for
# `cmake --install --component`: runtime, development, command, python (python/install.cmake).
include(CMakePackageConfigHelpers)

get_property(package_libraries GLOBAL PROPERTY ATTN_LIBRARIES)
set(package_facts "")
foreach(name ${package_libraries})
  get_property(needs GLOBAL PROPERTY ATTN_NEEDS_${name})
  get_property(modules GLOBAL PROPERTY ATTN_MODULES_${name})
  string(APPEND package_facts "set(_attn_needs_${name} ${needs})\nset(_attn_modules_${name} ${modules})\n")
endforeach()

configure_package_config_file(cmake/libattn-config.cmake.in ${PROJECT_BINARY_DIR}/libattn-config.cmake INSTALL_DESTINATION ${ATTN_PACKAGE_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/libattn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/libattn-config.cmake ${PROJECT_BINARY_DIR}/libattn-config-version.cmake
        DESTINATION ${ATTN_PACKAGE_FOLDER} COMPONENT development)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT development)
install(CODE "set(INCLUDE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
              set(FOLDER \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
              include(\"${CMAKE_CURRENT_LIST_DIR}/link_docs.cmake\")" COMPONENT development)
