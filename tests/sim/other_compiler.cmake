# SPDX-License-Identifier: BSL-1.0
# One seed is one world from every compiler: compiles same_hash/exchange.cpp, which says what that
# covers, with OURS and with OTHER, which may be too old for coroutines, with and without
# optimisation; all must print the same hashes.
file(MAKE_DIRECTORY "${BUILD}/weft")
# The same without its refusal of old compilers, for those headers only.
file(READ "${WEFT_SOURCE_DIR}/include/weft/config.hpp" config)
string(REGEX REPLACE "#error[^\n]*" "" config "${config}")
file(WRITE "${BUILD}/weft/config.hpp" "${config}")
list(TRANSFORM INCLUDES PREPEND "-idirafter" OUTPUT_VARIABLE includes)
foreach(which IN ITEMS OURS OTHER)
  foreach(level IN ITEMS -O0 -O2)
    set(program "${BUILD}/exchange_${which}${level}")
    execute_process(
      COMMAND "${${which}}" -std=c++20 -w ${level} -DASIO_STANDALONE -DASIO_NO_DEPRECATED
        "-I${BUILD}" "-I${WEFT_SOURCE_DIR}/include" ${includes}
        "${WEFT_SOURCE_DIR}/tests/sim/same_hash/exchange.cpp" -o "${program}" -pthread
      RESULT_VARIABLE failed OUTPUT_VARIABLE log ERROR_VARIABLE log)
    if(failed)
      message(FATAL_ERROR "failed: ${${which}} ${level}\n${log}")
    endif()
    execute_process(COMMAND "${program}" RESULT_VARIABLE failed OUTPUT_VARIABLE hashes)
    if(failed OR hashes STREQUAL "")
      message(FATAL_ERROR "failed: ${program}: ${failed}")
    endif()
    if(NOT DEFINED first)
      set(first "${hashes}")
    elseif(NOT hashes STREQUAL first)
      message(FATAL_ERROR "${${which}} ${level} says\n${hashes}, and not\n${first}")
    endif()
  endforeach()
endforeach()
