# SPDX-License-Identifier: MIT
# attn_library(NAME ...): one of our libraries, shared, static or both, from objects that are compiled once:
#
#   SOURCES        the C files
#   HEADERS        its public headers, without include/attn/; listed only here
#   DESCRIPTION    for pkg-config
#   NEEDS          those of our libraries that its headers include
#   MODULES        its dependencies, by their pkg-config names; found in cmake/dependencies.cmake
#   LIBS           other system libraries, such as m
#   THREADS        it uses threads
#   DEFINITIONS    for its own files
#
# The core is libattn and attn::attn, all others are libattn_NAME and attn::NAME; attn::NAME is the shared library, or the static one
# if there is no other, and attn::NAME_static the static one, both in the tree and in the installed package.  In the tree they are
# also attn_NAME_objects, attn_NAME_shared and attn_NAME_static (attn_shared and attn_static for the core).

# Before 1.0 any minor version may break the interface.
set(ATTN_ABI ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(ATTN_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

set(ATTN_VERSION_SCRIPT ${PROJECT_BINARY_DIR}/libattn.map)
configure_file(cmake/libattn.map.in ${ATTN_VERSION_SCRIPT} @ONLY)
check_linker_flag(C "LINKER:--version-script=${ATTN_VERSION_SCRIPT}" ATTN_HAVE_VERSION_SCRIPT)

# Our programs link the static libraries if they are built.
set(ATTN_KIND shared)
if(ATTN_STATIC)
  set(ATTN_KIND static)
endif()

set(ATTN_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/libattn)
define_property(GLOBAL PROPERTY ATTN_LIBRARIES BRIEF_DOCS "The names of all libraries" FULL_DOCS "In order of dependence")
set_property(GLOBAL PROPERTY ATTN_LIBRARIES "")

function(attn_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "THREADS" "DESCRIPTION" "SOURCES;HEADERS;NEEDS;MODULES;LIBS;DEFINITIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "attn_library(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(name STREQUAL "core")
    set(file attn)
    set(exported attn)
  else()
    set(file attn_${name})
    set(exported ${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY ATTN_LIBRARIES ${name})
  set_property(GLOBAL PROPERTY ATTN_HEADERS_${name} ${arg_HEADERS})
  attn_all_needs(needs ${arg_NEEDS})
  set_property(GLOBAL PROPERTY ATTN_NEEDS_${name} ${needs})
  set_property(GLOBAL PROPERTY ATTN_MODULES_${name} ${arg_MODULES})

  list(TRANSFORM arg_MODULES PREPEND PkgConfig:: OUTPUT_VARIABLE build_libs)
  list(APPEND build_libs ${arg_LIBS})
  if(arg_THREADS)
    list(APPEND build_libs $<BUILD_INTERFACE:${ATTN_THREADS}>)
  endif()

  # A DLL must declare its exports, so it cannot share objects with the static library.
  attn_objects(attn_${name}_objects)
  set(shared_objects attn_${name}_objects)
  if(WIN32 AND ATTN_SHARED AND ATTN_STATIC)
    set(shared_objects attn_${name}_dll_objects)
    attn_objects(${shared_objects})
  endif()
  if(ATTN_SHARED)
    target_compile_definitions(${shared_objects} PRIVATE ATTN_BUILD_SHARED)
    attn_link(shared SHARED ${shared_objects})
    target_link_libraries(${file}_shared PRIVATE $<BUILD_INTERFACE:attn_harden>)
    set_target_properties(${file}_shared PROPERTIES EXPORT_NAME ${exported})
    if(NOT ATTN_WHEEL) # a wheel has no links, so each name would be a copy
      set_target_properties(${file}_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${ATTN_ABI})
    endif()
    if(arg_NEEDS)
      set_target_properties(${file}_shared PROPERTIES INSTALL_RPATH "$ORIGIN")
    endif()
    if(ATTN_HAVE_VERSION_SCRIPT)
      target_link_options(${file}_shared PRIVATE LINKER:--version-script=${ATTN_VERSION_SCRIPT})
      set_target_properties(${file}_shared PROPERTIES LINK_DEPENDS ${ATTN_VERSION_SCRIPT})
    endif()
    add_library(attn::${exported} ALIAS ${file}_shared)
  endif()
  if(ATTN_STATIC)
    attn_link(static STATIC attn_${name}_objects)
    set_target_properties(${file}_static PROPERTIES EXPORT_NAME ${exported}_static)
    if(arg_THREADS)
      set_property(TARGET ${file}_static APPEND PROPERTY INTERFACE_LINK_LIBRARIES "$<INSTALL_INTERFACE:${ATTN_THREADS_INSTALLED}>")
    endif()
    add_library(attn::${exported}_static ALIAS ${file}_static)
    if(NOT ATTN_SHARED)
      add_library(attn::${exported} ALIAS ${file}_static)
    endif()
  endif()

  if(ATTN_INSTALL)
    attn_install_pkgconfig()
    list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/attn/)
    install(FILES ${arg_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn COMPONENT development)
  endif()
endfunction()

# Sets OUT to the names and all libraries that they need.
function(attn_all_needs out)
  set(all "")
  foreach(name ${ARGN})
    get_property(needs GLOBAL PROPERTY ATTN_NEEDS_${name})
    list(APPEND all ${needs} ${name})
  endforeach()
  list(REMOVE_DUPLICATES all)
  set(${out} ${all} PARENT_SCOPE)
endfunction()

# The functions below are steps of attn_library and read its variables.

function(attn_objects target)
  add_library(${target} OBJECT ${arg_SOURCES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(${target} PRIVATE attn_options attn_harden ${build_libs})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ${ATTN_HOSTED} C_VISIBILITY_PRESET hidden)
endfunction()

# The library of a KIND, shared or static, and its installation.  Each has an export of its own: the package leaves out a static
# library whose dependencies it does not find.
function(attn_link kind KIND objects)
  set(target ${file}_${kind})
  add_library(${target} ${KIND} $<TARGET_OBJECTS:${objects}>)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  foreach(need ${arg_NEEDS})
    string(REPLACE "attn_core" "attn" need attn_${need})
    target_link_libraries(${target} PUBLIC ${need}_${kind})
  endforeach()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:attn_options> ${build_libs})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${file})
  if(ATTN_INSTALL)
    install(
      TARGETS ${target} EXPORT libattn-${name}-${kind}
      RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    install(EXPORT libattn-${name}-${kind} NAMESPACE attn:: DESTINATION ${ATTN_PACKAGE_FOLDER} COMPONENT development)
  endif()
endfunction()

# pkg-config: paths relative to the .pc file, unless the installer specified absolute folders.  Without a shared library, every
# program links the dependencies of the static one.
function(attn_install_pkgconfig)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE pc_libdir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE pc_includedir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_prefix)
  set(pc_requires "")
  foreach(need ${arg_NEEDS})
    string(REPLACE "attn_core" "attn" need attn_${need})
    list(APPEND pc_requires lib${need})
  endforeach()
  list(TRANSFORM arg_LIBS PREPEND -l OUTPUT_VARIABLE pc_libs_private)
  if(arg_THREADS)
    list(APPEND pc_libs_private ${ATTN_THREADS_INSTALLED})
  endif()
  set(pc_libs -l${file})
  set(pc_requires_private ${arg_MODULES})
  if(NOT ATTN_SHARED)
    list(APPEND pc_libs ${pc_libs_private})
    list(APPEND pc_requires ${pc_requires_private})
    set(pc_libs_private "")
    set(pc_requires_private "")
  endif()
  foreach(field pc_requires pc_requires_private pc_libs pc_libs_private)
    list(JOIN ${field} " " ${field})
  endforeach()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/libattn.pc.in ${PROJECT_BINARY_DIR}/lib${file}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/lib${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()
