# SPDX-License-Identifier: BSL-1.0
# weft::compiled: weft::weft and weft::torch with the engine as a static library, which is compiled
# in the build tree of who links it, with that project's flags, and only if something links it. Every
# file of a program that links it knows so by WEFT_SEPARATE_COMPILATION, and includes faces only; a
# file that does not know, because it links weft::weft alone, does not link with the others.
if(TARGET weft::compiled OR NOT TARGET weft::torch)
  return()
endif()
add_library(weft_compiled STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/compiled.cpp")
add_library(weft::compiled ALIAS weft_compiled)
target_compile_definitions(weft_compiled PUBLIC WEFT_SEPARATE_COMPILATION)
target_link_libraries(weft_compiled PUBLIC weft::weft weft::torch)
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
