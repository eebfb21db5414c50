# SPDX-License-Identifier: BSL-1.0
# weft::weft, also named weft::compiled: headers, libtorch, and a static library of what can be
# compiled once. It is compiled in the build tree of the project that links it, with that project's
# flags, and only if something links it. Every file of such a program knows so by
# WEFT_SEPARATE_COMPILATION. A shared library that links it takes in what it needs, which is not the
# engine. weft::header_only is the same without that library: each file compiles what it needs, and
# each that includes <weft/run.hpp> the engine. Files of the two kinds do not link with each other.
if(TARGET weft::weft OR NOT TARGET weft::torch)
  return()
endif()
add_library(weft_header_only INTERFACE)
add_library(weft::header_only ALIAS weft_header_only)
target_link_libraries(weft_header_only INTERFACE weft::headers weft::torch)
add_library(weft_compiled STATIC EXCLUDE_FROM_ALL
  "${CMAKE_CURRENT_LIST_DIR}/compiled_base.cpp" "${CMAKE_CURRENT_LIST_DIR}/compiled_engine.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/compiled_tensordict.cpp")
add_library(weft::weft ALIAS weft_compiled)
add_library(weft::compiled ALIAS weft_compiled)
target_compile_definitions(weft_compiled PUBLIC WEFT_SEPARATE_COMPILATION)
target_link_libraries(weft_compiled PUBLIC weft::headers weft::torch)
# Position independent, as a shared library of the project may take it in. What the project does to
# look at its own files is not for this one.
set_target_properties(weft_compiled PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  COMPILE_WARNING_AS_ERROR OFF
  CXX_CLANG_TIDY ""
  CXX_CPPLINT ""
  CXX_CPPCHECK ""
  CXX_INCLUDE_WHAT_YOU_USE ""
  CXX_SCAN_FOR_MODULES OFF
  UNITY_BUILD OFF
  FOLDER weft)
target_compile_options(weft_compiled PRIVATE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-w>)
