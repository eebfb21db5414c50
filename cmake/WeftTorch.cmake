# SPDX-License-Identifier: BSL-1.0
# Finds libtorch and defines
#   weft::torch       torch_cpu + c10, which is all that weft needs
#   weft::torch_cuda  torch_cuda + c10_cuda, for targets that ask for CUDA (where they exist)
# without find_package(Torch), which needs a CUDA toolkit for a CUDA wheel and links libtorch_cuda
# into every program. WEFT_TORCH_DIR, if it is set, is the one to take: the folder with include/ and
# lib/, which is .../site-packages/torch for a torch that pip installed. Else it is the first of these
# that passes a probe (torch_probe.cpp):
#   1. where CMake is pointed: Torch_DIR, CMAKE_PREFIX_PATH;
#   2. the torch of the Python on PATH, found by its files;
#   3. Debian's libtorch-dev;  4. with WEFT_PRIVATE_TORCH, a virtual environment in WEFT_DEPS_DIR,
#      made here.
# Sets WEFT_TORCH_FOUND, or WEFT_TORCH_WHY (a sentence that says what to do); WEFT_TORCH_ROOT, and
# WEFT_TORCHRUN (a command as a list) where torchrun came with it.

set(WEFT_TORCH_MINIMUM 2.6.0)
set(WEFT_TORCH_WANTED 2.11.0) # what the private environment gets

# One candidate's files: sets <prefix>_INCLUDE, _LIBRARIES, _VERSION, _ABI, or _WHY.
function(_weft_torch_files prefix root)
  set(why "")
  if(root STREQUAL "/usr")
    find_library(_weft_torch_cpu torch_cpu NO_CACHE)
    find_library(_weft_c10 c10 NO_CACHE)
  else()
    find_library(_weft_torch_cpu torch_cpu PATHS "${root}/lib" NO_DEFAULT_PATH NO_CACHE)
    find_library(_weft_c10 c10 PATHS "${root}/lib" NO_DEFAULT_PATH NO_CACHE)
  endif()
  set(version "")
  foreach(file IN ITEMS headeronly/version.h csrc/api/include/torch/version.h)
    if(NOT version AND EXISTS "${root}/include/torch/${file}")
      file(STRINGS "${root}/include/torch/${file}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
      string(REPLACE ";" "." version "${numbers}")
    endif()
  endforeach()
  if(NOT _weft_torch_cpu OR NOT _weft_c10)
    set(why "it has no libtorch_cpu and libc10")
  elseif(NOT version)
    set(why "it has no headers")
  elseif(version VERSION_LESS WEFT_TORCH_MINIMUM)
    set(why "it is ${version}, and weft needs ${WEFT_TORCH_MINIMUM}")
  endif()
  set(abi 1)
  foreach(config IN ITEMS "${root}/share/cmake/Torch/TorchConfig.cmake")
    if(EXISTS "${config}")
      file(STRINGS "${config}" flags REGEX "_GLIBCXX_USE_CXX11_ABI=0")
      if(flags)
        set(abi 0)
      endif()
    endif()
  endforeach()
  set(${prefix}_INCLUDE "${root}/include;${root}/include/torch/csrc/api/include" PARENT_SCOPE)
  set(${prefix}_LIBRARIES "${_weft_torch_cpu};${_weft_c10}" PARENT_SCOPE)
  set(${prefix}_VERSION "${version}" PARENT_SCOPE)
  set(${prefix}_ABI "${abi}" PARENT_SCOPE)
  set(${prefix}_WHY "${why}" PARENT_SCOPE)
endfunction()

# Compiles, links and runs the probe; <out> is empty if it passed, else one line that says why not.
# The answer is cached per candidate.
function(_weft_torch_probe out root)
  _weft_torch_files(torch "${root}")
  if(torch_WHY)
    set(${out} "${torch_WHY}" PARENT_SCOPE)
    return()
  endif()
  string(MD5 key "${root} ${torch_VERSION}")
  if(NOT DEFINED WEFT_TORCH_PROBE_${key})
    message(STATUS "weft: trying libtorch ${torch_VERSION} in ${root}")
    find_package(Threads REQUIRED)
    try_run(ran compiled "${CMAKE_BINARY_DIR}/CMakeFiles/weft_torch_probe"
      "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/torch_probe.cpp"
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${torch_INCLUDE}"
      COMPILE_DEFINITIONS -std=c++20 -w -D_GLIBCXX_USE_CXX11_ABI=${torch_ABI}
      LINK_LIBRARIES ${torch_LIBRARIES} Threads::Threads
      COMPILE_OUTPUT_VARIABLE compile_log
      RUN_OUTPUT_VARIABLE run_log)
    set(why "")
    if(NOT compiled)
      string(REGEX MATCH "[^\n]*(error:|undefined|No such file)[^\n]*" line "${compile_log}")
      set(why "the probe does not build: ${line}")
    elseif(NOT ran EQUAL 0)
      string(REGEX MATCH "[^\n]+" line "${run_log}")
      set(why "the probe does not run: ${line}")
    endif()
    unset(ran CACHE)
    unset(compiled CACHE)
    set(WEFT_TORCH_PROBE_${key} "${why}" CACHE INTERNAL "why libtorch in ${root} is of no use")
  endif()
  set(${out} "${WEFT_TORCH_PROBE_${key}}" PARENT_SCOPE)
endfunction()

# The folder of the torch package of a Python, without importing it.
function(_weft_torch_of_python out python)
  execute_process(
    COMMAND "${python}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET TIMEOUT 30)
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Runs one command of the private environment's making.
function(_weft_torch_step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed ERROR_VARIABLE log OUTPUT_VARIABLE log)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "weft: could not make a private libtorch, `${command}` failed; \
install libtorch ${WEFT_TORCH_MINIMUM} or newer and configure with -DWEFT_TORCH_DIR=<its folder>.\n${log}")
  endif()
endfunction()

# Makes the private environment, once: torch without what it asks for, and the two CUDA libraries
# that a CUDA wheel's libtorch_cpu links (nothing else of CUDA; no toolkit and no GPU is needed).
function(_weft_private_torch out)
  set(venv "${WEFT_DEPS_DIR}/torch-${WEFT_TORCH_WANTED}")
  file(MAKE_DIRECTORY "${WEFT_DEPS_DIR}")
  file(LOCK "${WEFT_DEPS_DIR}/torch.lock" GUARD FUNCTION)
  if(NOT EXISTS "${venv}/complete")
    foreach(candidate IN ITEMS python3 /usr/bin/python3)
      execute_process(COMMAND ${candidate} -c "import venv, ensurepip"
        RESULT_VARIABLE lacking OUTPUT_QUIET ERROR_QUIET)
      if(NOT lacking)
        set(python ${candidate})
        break()
      endif()
    endforeach()
    if(NOT python)
      message(FATAL_ERROR "weft: no libtorch was found and no python3 with venv to install one: \
run `./dev deps --install`, or configure with -DWEFT_TORCH_DIR=<a libtorch folder>.")
    endif()
    message(STATUS "weft: installing libtorch ${WEFT_TORCH_WANTED} into ${venv} (about 0.6 GB to fetch)")
    file(REMOVE_RECURSE "${venv}")
    set(pip "${venv}/bin/python" -m pip install --quiet --progress-bar off --no-deps)
    _weft_torch_step(${python} -m venv "${venv}")
    _weft_torch_step(${pip} torch==${WEFT_TORCH_WANTED} typing_extensions)
    _weft_torch_of_python(root "${venv}/bin/python")
    file(STRINGS "${root}/version.py" cuda REGEX "^cuda.*'[0-9]+\\.[0-9]+'")
    if(cuda MATCHES "'([0-9]+)\\.([0-9]+)'")
      set(suffix "")
      if(CMAKE_MATCH_1 LESS 13) # earlier wheels carried the version in their names
        set(suffix "-cu${CMAKE_MATCH_1}")
      endif()
      set(series "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.*")
      _weft_torch_step(${pip} "nvidia-cuda-runtime${suffix}==${series}" "nvidia-cuda-cupti${suffix}==${series}")
    endif()
    file(TOUCH "${venv}/complete")
  endif()
  _weft_torch_of_python(root "${venv}/bin/python")
  set(${out} "${root}" PARENT_SCOPE)
endfunction()

# The candidates in order, as a list of "what it is|root".
function(_weft_torch_candidates out)
  set(found "")
  if(WEFT_TORCH_DIR)
    set(${out} "WEFT_TORCH_DIR|${WEFT_TORCH_DIR}" PARENT_SCOPE)
    return()
  endif()
  if(Torch_DIR)
    get_filename_component(root "${Torch_DIR}/../../.." ABSOLUTE)
    list(APPEND found "Torch_DIR|${root}")
  endif()
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    foreach(up IN ITEMS "" "/../..") # torch.utils.cmake_prefix_path ends in share/cmake
      get_filename_component(root "${prefix}${up}" ABSOLUTE)
      if(EXISTS "${root}/include/ATen/ATen.h")
        list(APPEND found "CMAKE_PREFIX_PATH|${root}")
      endif()
    endforeach()
  endforeach()
  find_program(_weft_python NAMES python3 python NO_CACHE)
  if(_weft_python)
    _weft_torch_of_python(root "${_weft_python}")
    if(root)
      list(APPEND found "the torch of ${_weft_python}|${root}")
    endif()
  endif()
  if(EXISTS /usr/include/ATen/ATen.h)
    list(APPEND found "libtorch-dev|/usr")
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(_weft_torch_import root)
  _weft_torch_files(torch "${root}")
  list(GET torch_LIBRARIES 0 torch_cpu)
  list(GET torch_LIBRARIES 1 c10)
  add_library(weft::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(weft::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${torch_INCLUDE}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${torch_INCLUDE}"
    INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=${torch_ABI}
    INTERFACE_LINK_LIBRARIES "${torch_cpu};${c10};Threads::Threads")
  get_filename_component(folder "${torch_cpu}" DIRECTORY)
  if(EXISTS "${folder}/libtorch_cuda.so" AND EXISTS "${folder}/libc10_cuda.so")
    add_library(weft::torch_cuda INTERFACE IMPORTED GLOBAL)
    # Nothing of a program refers to libtorch_cuda, which registers itself when it is loaded.
    set_target_properties(weft::torch_cuda PROPERTIES
      INTERFACE_LINK_LIBRARIES "weft::torch"
      INTERFACE_LINK_OPTIONS
        "LINKER:--push-state,--no-as-needed;${folder}/libtorch_cuda.so;${folder}/libc10_cuda.so;LINKER:--pop-state")
  endif()
  set(torchrun "")
  get_filename_component(packages "${root}" DIRECTORY)
  foreach(bin IN ITEMS "${packages}/../../../bin" /usr/bin)
    if(NOT torchrun AND EXISTS "${bin}/torchrun" AND EXISTS "${root}/distributed/run.py")
      get_filename_component(torchrun "${bin}/torchrun" ABSOLUTE)
    endif()
  endforeach()
  set(WEFT_TORCH_ROOT "${root}" CACHE INTERNAL "the libtorch that weft uses")
  set(WEFT_TORCHRUN "${torchrun}" CACHE INTERNAL "torchrun of that libtorch")
endfunction()

set(WEFT_TORCH_WHY "")
if(TARGET weft::torch)
  set(WEFT_TORCH_FOUND TRUE)
else()
  find_package(Threads REQUIRED)
  set(WEFT_TORCH_FOUND FALSE)
  _weft_torch_candidates(_weft_candidates)
  foreach(_weft_candidate IN LISTS _weft_candidates)
    string(REPLACE "|" ";" _weft_candidate "${_weft_candidate}")
    list(GET _weft_candidate 0 _weft_what)
    list(GET _weft_candidate 1 _weft_root)
    _weft_torch_probe(_weft_why "${_weft_root}")
    if(NOT _weft_why)
      set(WEFT_TORCH_FOUND TRUE)
      break()
    endif()
    message(STATUS "weft: not using ${_weft_what} (${_weft_root}): ${_weft_why}")
  endforeach()
  if(NOT WEFT_TORCH_FOUND AND WEFT_TORCH_DIR)
    set(WEFT_TORCH_WHY "weft: WEFT_TORCH_DIR is ${WEFT_TORCH_DIR}, but ${_weft_why}: set it to the \
folder with libtorch's include/ and lib/ (of a pip install: .../site-packages/torch).")
  elseif(NOT WEFT_TORCH_FOUND AND WEFT_PRIVATE_TORCH)
    _weft_private_torch(_weft_root)
    _weft_torch_probe(_weft_why "${_weft_root}")
    if(_weft_why)
      message(FATAL_ERROR "weft: the private libtorch in ${_weft_root} is of no use: ${_weft_why}")
    endif()
    set(WEFT_TORCH_FOUND TRUE)
  elseif(NOT WEFT_TORCH_FOUND)
    set(WEFT_TORCH_WHY "weft: found no libtorch ${WEFT_TORCH_MINIMUM} or newer: configure with \
-DWEFT_TORCH_DIR=<the folder with its include/ and lib/> (of a pip install: .../site-packages/torch).")
  endif()
  if(WEFT_TORCH_FOUND)
    _weft_torch_import("${_weft_root}")
    if(NOT DEFINED CACHE{WEFT_TORCH_SAID} OR NOT "$CACHE{WEFT_TORCH_SAID}" STREQUAL "${_weft_root}")
      message(STATUS "weft: using libtorch in ${_weft_root}")
      set(WEFT_TORCH_SAID "${_weft_root}" CACHE INTERNAL "")
    endif()
  endif()
endif()
