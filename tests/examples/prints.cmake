# SPDX-License-Identifier: BSL-1.0
# PROGRAM must print what the comment at the head of its SOURCE shows, on its standard output and in
# any worker's name, and end with status 0 within five minutes.
file(READ "${SOURCE}" source)
if(NOT source MATCHES "\n//\n((//   [^\n]*\n)+)")
  message(FATAL_ERROR "${SOURCE} does not say what it prints")
endif()
string(REGEX REPLACE "(^|\n)//   " "\\1" wanted "${CMAKE_MATCH_1}")
execute_process(COMMAND "${PROGRAM}" RESULT_VARIABLE status OUTPUT_VARIABLE said
  ERROR_VARIABLE complaints TIMEOUT 300)
string(REGEX REPLACE "(^|\n)\\[[^]\n]*\\] " "\\1" said "${said}")
if(NOT status STREQUAL "0" OR NOT said STREQUAL wanted)
  message(FATAL_ERROR
    "${PROGRAM} ended with ${status} and printed\n${said}instead of\n${wanted}\n${complaints}")
endif()
