# SPDX-License-Identifier: BSL-1.0
# weft_precompile(<target>): gives the files of a target a precompiled header with weft.hpp, the
# parts of Asio that go with it and ATen/ATen.h, for which a compiler needs seconds each time that it
# reads them. Targets whose files are compiled alike share one, which takes its place on the disk
# (some 100 MB) and its time once; a target that cannot share has its own. May stand before or after
# the lines that say what the target links, and does what it does at the end of that directory.
include_guard(GLOBAL)

function(weft_precompile target)
  if(NOT TARGET "${target}")
    message(FATAL_ERROR "weft_precompile: there is no target ${target}")
  endif()
  get_target_property(type "${target}" TYPE)
  if(NOT type MATCHES "^(EXECUTABLE|(STATIC|SHARED|MODULE|OBJECT)_LIBRARY)$")
    message(FATAL_ERROR "weft_precompile: ${target} compiles no file (it is ${type})")
  endif()
  if(NOT TARGET weft::torch)
    message(FATAL_ERROR "weft_precompile: weft.hpp needs weft::torch, and there is none")
  endif()
  cmake_language(EVAL CODE "cmake_language(DEFER CALL _weft_precompile [==[${target}]==])")
endfunction()

function(_weft_precompile target)
  # Not for a file of C, if the target has one.
  set(headers "")
  foreach(header IN ITEMS weft/weft asio/awaitable asio/co_spawn asio/detached asio/io_context
      asio/steady_timer asio/this_coro asio/use_awaitable)
    list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:<${header}.hpp$<ANGLE-R>>")
  endforeach()
  list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:<ATen/ATen.h$<ANGLE-R>>")

  # What tells a shared library from its users is part of how its files are compiled; a header of its
  # own that is there already gets ours in addition.
  get_target_property(type ${target} TYPE)
  get_target_property(has ${target} PRECOMPILE_HEADERS)
  if(has OR type MATCHES "^(SHARED|MODULE)_LIBRARY$")
    target_precompile_headers(${target} PRIVATE ${headers})
    return()
  endif()

  # What the compiler is told, by properties and by what this directory says to all of its files.
  set(compared COMPILE_DEFINITIONS COMPILE_OPTIONS COMPILE_FEATURES COMPILE_FLAGS INCLUDE_DIRECTORIES
    LINK_LIBRARIES CXX_STANDARD CXX_EXTENSIONS CXX_VISIBILITY_PRESET VISIBILITY_INLINES_HIDDEN
    INTERPROCEDURAL_OPTIMIZATION)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  set(told "${CMAKE_CXX_FLAGS}|${CMAKE_CXX_FLAGS_${build_type}}")
  foreach(property IN LISTS compared)
    get_target_property(${property} ${target} ${property})
    if(property STREQUAL "LINK_LIBRARIES")  # a library is the same by each of its names
      set(names "${${property}}")
      set(${property} "")
      foreach(name IN LISTS names)
        if(TARGET "${name}")
          get_target_property(aliased "${name}" ALIASED_TARGET)
          if(aliased)
            set(name "${aliased}")
          endif()
        endif()
        list(APPEND ${property} "${name}")
      endforeach()
    endif()
    string(APPEND told "|${property}=${${property}}")
  endforeach()
  # An executable's -fPIE is not a library's -fPIC.
  get_target_property(independent ${target} POSITION_INDEPENDENT_CODE)
  set(code "")
  if(independent AND type STREQUAL "EXECUTABLE")
    set(code ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
  elseif(independent)
    set(code ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
  endif()
  string(SHA1 key "${told}|${code}")
  string(SUBSTRING "${key}" 0 12 key)

  set(shared weft_precompiled_${key})
  if(NOT TARGET ${shared})
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${shared}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "")
    add_library(${shared} OBJECT EXCLUDE_FROM_ALL "${source}")
    foreach(property IN LISTS compared)
      if(NOT "${${property}}" MATCHES "-NOTFOUND$")
        set_property(TARGET ${shared} PROPERTY ${property} "${${property}}")
      endif()
    endforeach()
    set_target_properties(${shared} PROPERTIES FOLDER weft POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${shared} PRIVATE ${code})
    target_precompile_headers(${shared} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()
