# SPDX-License-Identifier: BSL-1.0
# Ids and signatures are the same from every compiler: compiles their tests with COMPILER, which may
# be too old for the rest of weft, and runs them.
file(MAKE_DIRECTORY "${BUILD}")
file(WRITE "${BUILD}/main.cpp"
  "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n")
foreach(command IN ITEMS
    "${COMPILER};-std=c++20;-w;-I${WEFT_SOURCE_DIR}/include;-idirafter;${DOCTEST};${WEFT_SOURCE_DIR}/tests/rpc/identity.cpp;${WEFT_SOURCE_DIR}/tests/rpc/function.cpp;${WEFT_SOURCE_DIR}/tests/wire/structure.cpp;${BUILD}/main.cpp;-o;${BUILD}/same_names"
    "${BUILD}/same_names")
  execute_process(COMMAND ${command} RESULT_VARIABLE failed OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(failed)
    message(FATAL_ERROR "failed: ${command}\n${log}")
  endif()
endforeach()
