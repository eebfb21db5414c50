# SPDX-License-Identifier: BSL-1.0
# Two files of one program that disagree about WEFT_SEPARATE_COMPILATION do not link, whichever
# comes first and with whichever linker of LINKERS, and the message names what must be the same. Two
# that agree do.
set(ENV{LC_ALL} C)
set(ENV{CCACHE_DISABLE} 1)
file(MAKE_DIRECTORY "${BUILD}")
file(WRITE "${BUILD}/first.cpp" "#include <weft/config.hpp>
int second();
int main() { return second(); }
")
file(WRITE "${BUILD}/second.cpp" "#include <weft/version.hpp>
#include <weft/core/error.hpp>
int second();
int second() { return weft::error() ? 1 : 0; }
")
function(compile file object)
  execute_process(COMMAND "${COMPILER}" "@${FLAGS}" ${ARGN} -c "${BUILD}/${file}.cpp"
    -o "${BUILD}/${object}.o" RESULT_VARIABLE failed ERROR_VARIABLE log)
  if(failed)
    message(FATAL_ERROR "${file}.cpp does not compile:\n${log}")
  endif()
endfunction()
foreach(file IN ITEMS first second)
  compile(${file} ${file}.headers)
  compile(${file} ${file}.compiled -DWEFT_SEPARATE_COMPILATION)
endforeach()

foreach(linker IN LISTS LINKERS)
  foreach(one IN ITEMS headers compiled)
    foreach(other IN ITEMS headers compiled)
      foreach(order IN ITEMS "first.${one} second.${other}" "second.${other} first.${one}")
        string(REGEX REPLACE "([a-z.]+) ([a-z.]+)" "${BUILD}/\\1.o;${BUILD}/\\2.o" objects "${order}")
        execute_process(COMMAND "${COMPILER}" ${linker} ${objects} -o "${BUILD}/program"
          RESULT_VARIABLE failed ERROR_VARIABLE log OUTPUT_VARIABLE log)
        if(one STREQUAL other AND failed)
          message(SEND_ERROR "${order} agree, but with '${linker}'\n${log}")
        elseif(NOT one STREQUAL other AND NOT failed)
          message(SEND_ERROR "${order} disagree, and link with '${linker}'")
        elseif(failed AND NOT log MATCHES "every_file_agrees_on_WEFT_SEPARATE_COMPILATION")
          message(SEND_ERROR "${order}, '${linker}': not the message that should be\n${log}")
        endif()
      endforeach()
    endforeach()
  endforeach()
endforeach()
