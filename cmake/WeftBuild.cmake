# SPDX-License-Identifier: BSL-1.0
# How weft's own tests, examples and benchmarks are compiled; nothing here reaches a user of weft.
include_guard(GLOBAL)

set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# ccache, if present. Precompiled headers need its leave to ignore time stamps.
find_program(WEFT_CCACHE ccache)
mark_as_advanced(WEFT_CCACHE)
if(WEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
    "CCACHE_DEPEND=1" "${WEFT_CCACHE}")
endif()

# Warnings, and what both halves of a precompiled header must agree on.
add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE ASIO_NO_DEPRECATED)
target_compile_options(weft_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  $<$<BOOL:${WEFT_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Xclang;-fno-pch-timestamp>
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)

# GNU ld needs half a minute for what lld does in one second.
find_program(WEFT_LLD NAMES ld.lld-19 ld.lld-18 ld.lld-17 ld.lld)
mark_as_advanced(WEFT_LLD)
if(WEFT_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_link_options(weft_flags INTERFACE "--ld-path=${WEFT_LLD}")
endif()

# What is recycled, as coroutines' frames and requests are, looks alive to a sanitizer when it is not.
set(weft_nothing_recycled ASIO_DISABLE_AWAITABLE_FRAME_RECYCLING ASIO_DISABLE_SMALL_BLOCK_RECYCLING
  WEFT_DISABLE_BLOCK_RECYCLING)

# Sanitizers of a whole preset; weft_sanitized is for the second, sanitized copies of pure tests.
add_library(weft_unsanitized INTERFACE)
if(WEFT_SANITIZE)
  target_compile_options(weft_unsanitized INTERFACE
    -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(weft_unsanitized INTERFACE -fsanitize=${WEFT_SANITIZE})
  target_compile_definitions(weft_unsanitized INTERFACE ${weft_nothing_recycled})
endif()
add_library(weft_sanitized INTERFACE)
target_compile_options(weft_sanitized INTERFACE
  -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all
  # What ASan finds as well: a check at each access takes long to compile.
  -fno-sanitize=null,object-size)
target_link_options(weft_sanitized INTERFACE -fsanitize=address,undefined)
target_compile_definitions(weft_sanitized INTERFACE ${weft_nothing_recycled})

# weft_precompiled(<name> LIBRARIES… HEADERS… [OWN…]): a precompiled header, as a target that
# weft_reuses names. OWN are headers of this repository: only Clang has them in it, which compiles the
# functions that a precompiled header defines once, into an object file for every program, so that a
# source file compiles no more than what is its own; the linker takes what is used. Not in Release,
# whose programs are measured: they are compiled as users' are.
set(weft_pch_compiled OFF)
if(WEFT_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  set(weft_pch_compiled ON)
endif()
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
separate_arguments(weft_cxx_flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
function(weft_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES;OWN;FOLDERS")
  set(source "${PROJECT_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_library(${name} OBJECT "${source}")
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  target_link_libraries(${name} PRIVATE weft::headers weft_flags ${arg_LIBRARIES})
  target_include_directories(${name} PRIVATE ${arg_FOLDERS})
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  if(NOT weft_pch_compiled OR NOT arg_OWN)
    return()
  endif()
  target_precompile_headers(${name} PRIVATE ${arg_OWN})
  target_compile_options(${name} PRIVATE -fpch-codegen)
  set(header "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.pch")
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}_functions.o")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 ${weft_cxx_flags} -Wno-unused-command-line-argument
      -ffunction-sections -fdata-sections "$<TARGET_PROPERTY:${name},COMPILE_OPTIONS>"
      -c "${header}" -o "${object}"
    DEPENDS "${header}" COMMENT "Compiling the functions of ${name}" COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${name}_functions DEPENDS "${object}")
  set_property(TARGET ${name} PROPERTY weft_object "${object}")
endfunction()

# weft_precompiled_flags(<precompiled> <variable>): what a command that runs the compiler by itself
# needs to use it.
function(weft_precompiled_flags name variable)
  set(flags ${weft_cxx_flags})
  get_target_property(folder ${name} BINARY_DIR)
  set(pch "${folder}/CMakeFiles/${name}.dir/cmake_pch.hxx")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND flags -Xclang -fno-pch-timestamp -include-pch "${pch}.pch")
  else()
    list(APPEND flags -fpch-preprocess -include "${pch}")
  endif()
  set(${variable} ${flags} PARENT_SCOPE)
endfunction()

# weft_reuses(<target> <precompiled>)
function(weft_reuses target precompiled)
  target_precompile_headers(${target} REUSE_FROM ${precompiled})
  get_target_property(object ${precompiled} weft_object)
  get_target_property(type ${target} TYPE)
  if(object AND type STREQUAL "EXECUTABLE")
    target_link_libraries(${target} PRIVATE "${object}")
    target_link_options(${target} PRIVATE -Wl,--gc-sections)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${object}")
    add_dependencies(${target} ${precompiled}_functions)
  endif()
endfunction()

# One with libtorch, for all that uses tensors.
if(TARGET weft::torch)
  set(weft_own "")
  foreach(header IN LISTS weft_headers)
    if(NOT header MATCHES "/(impl|detail|engine|sim|tensordict)/|/src[a-z_]*\\.hpp$")
      string(REGEX REPLACE "^include/(.*)" "<\\1>" header "${header}")
      list(APPEND weft_own "${header}")
    endif()
  endforeach()
  weft_precompiled(weft_pch LIBRARIES weft::torch weft_unsanitized OWN ${weft_own} HEADERS
    <asio.hpp>
    <nlohmann/json.hpp>
    <ATen/ATen.h>
    <torch/csrc/autograd/function.h>
    <torch/csrc/autograd/functions/accumulate_grad.h>
    <torch/csrc/autograd/functions/utils.h>
    <torch/csrc/autograd/generated/variable_factories.h>
    <torch/csrc/autograd/variable.h>
    <torch/csrc/distributed/c10d/Store.hpp>)
  # The engine, for what declares it only.
  add_library(weft_engine OBJECT EXCLUDE_FROM_ALL
    "${PROJECT_SOURCE_DIR}/cmake/compiled_base.cpp" "${PROJECT_SOURCE_DIR}/cmake/compiled_engine.cpp"
    "${PROJECT_SOURCE_DIR}/cmake/compiled_tensordict.cpp")
  target_link_libraries(weft_engine PRIVATE weft::headers weft::torch weft_flags weft_unsanitized)
  target_compile_definitions(weft_engine PRIVATE WEFT_SEPARATE_COMPILATION)
  set_target_properties(weft_engine PROPERTIES CXX_EXTENSIONS OFF)
  if(NOT weft_pch_compiled)
    target_precompile_headers(weft_engine REUSE_FROM weft_pch)
  endif()
endif()

# weft_program(<name> <torch|pure|sanitized> SOURCES… [LIBRARIES…] [RUNS]): a program of this
# repository. One that RUNS names weft::run; all such share one engine that is compiled once, which
# lies in the precompiled header where that has functions.
function(weft_program name kind)
  cmake_parse_arguments(PARSE_ARGV 2 arg "RUNS" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  weft_compiled(${name} ${kind} ${arg_LIBRARIES})
  if(arg_RUNS AND NOT weft_pch_compiled)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:weft_engine>)
    target_compile_definitions(${name} PRIVATE WEFT_SEPARATE_COMPILATION)
  endif()
endfunction()

# weft_compiled(<target> <torch|pure|sanitized> [libraries…]): how sources of this repository are.
function(weft_compiled name kind)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${name} PRIVATE weft::headers weft_flags ${ARGN})
  if(kind STREQUAL "torch")
    target_link_libraries(${name} PRIVATE weft::torch weft_unsanitized)
    weft_reuses(${name} weft_pch)
  elseif(kind STREQUAL "pure")
    target_link_libraries(${name} PRIVATE weft_unsanitized)
  else()
    target_link_libraries(${name} PRIVATE weft_sanitized)
  endif()
endfunction()

# weft_test_needs(<test> [targets…]): what of this repository must be built for a test, so that
# `./dev test NAME` builds no more; without this, everything.
function(weft_test_needs test)
  list(JOIN ARGN " " targets)
  set_property(GLOBAL APPEND PROPERTY weft_test_needs "${test}|${targets}")
endfunction()

# weft_waits_for_all(<tests…>): these run in `./dev test --all` only.
function(weft_waits_for_all)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS all)
endfunction()

# weft_tests_take_places(<n>): at the end of a directory, how many of ctest's places, of which a core
# has two (./dev test), each of its tests takes that has not said it: one if it mostly waits.
function(weft_tests_take_places places)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} PROCESSORS said)
    if(NOT said)
      set_tests_properties(${test} PROPERTIES PROCESSORS ${places})
    endif()
  endforeach()
endfunction()

# weft_response_file(<file> <extra flags…>): at generation, what the compiler needs to find weft and
# all that it uses, one argument a line, for commands that run the compiler by themselves.
function(weft_response_file file)
  set(arguments -std=c++20 -DASIO_NO_DEPRECATED "-I${PROJECT_SOURCE_DIR}/include" ${ARGN})
  list(JOIN arguments "\n" content)
  set(way "-isystem\n")
  foreach(target IN ITEMS Asio::asio nlohmann_json::nlohmann_json tl::expected OpenSSL::Crypto
      weft::torch)
    # The compiler's own folders must not be moved to another place of its search.
    set(folders "$<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>")
    set(folders "$<FILTER:${folders},EXCLUDE,^/usr/include/?$>")
    set(macros "$<TARGET_PROPERTY:${target},INTERFACE_COMPILE_DEFINITIONS>")
    string(APPEND content "$<$<BOOL:${folders}>:\n${way}$<JOIN:${folders},\n${way}>>")
    string(APPEND content "$<$<BOOL:${macros}>:\n-D$<JOIN:${macros},\n-D>>")
  endforeach()
  file(GENERATE OUTPUT "${file}" CONTENT "${content}\n")
endfunction()
