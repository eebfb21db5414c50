# SPDX-License-Identifier: BSL-1.0
# PROGRAM with ARGUMENTS must end with STATUS, print what matches each regular expression in SAYS, and
# nothing that matches NEVER, within LIMIT seconds (60).
if(NOT LIMIT)
  set(LIMIT 60)
endif()
execute_process(COMMAND "${PROGRAM}" ${ARGUMENTS} RESULT_VARIABLE status OUTPUT_VARIABLE said
  ERROR_VARIABLE said TIMEOUT ${LIMIT})
if(NOT status STREQUAL "${STATUS}")
  message(FATAL_ERROR "${PROGRAM} ended with ${status}, not ${STATUS}:\n${said}")
endif()
foreach(wanted IN LISTS SAYS)
  if(NOT said MATCHES "${wanted}")
    message(FATAL_ERROR "${PROGRAM} does not say \"${wanted}\" but\n${said}")
  endif()
endforeach()
if(NEVER AND said MATCHES "${NEVER}")
  message(FATAL_ERROR "${PROGRAM} says \"${NEVER}\":\n${said}")
endif()
