# SPDX-License-Identifier: BSL-1.0
# Runs the command after `--`, which compiles SOURCE: it must fail, and its first line with "error:"
# must match the regular expression in the first line of SOURCE.
file(STRINGS "${SOURCE}" first LIMIT_COUNT 1)
if(NOT first MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "the first line of ${SOURCE} is not `// expect: <regex>`")
endif()
set(expected "${CMAKE_MATCH_1}")

set(command "")
set(seen FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(seen)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(seen TRUE)
  endif()
endforeach()

execute_process(COMMAND ${command} RESULT_VARIABLE failed ERROR_VARIABLE log OUTPUT_VARIABLE log)
if(NOT failed)
  message(FATAL_ERROR "${SOURCE} compiles, but must not")
endif()
string(REGEX MATCH "[^\n]*error: [^\n]*" error "${log}")
if(NOT error MATCHES "${expected}")
  message(FATAL_ERROR "expected an error that matches\n  ${expected}\nbut the first one is\n  ${error}\nin\n${log}")
endif()
