# SPDX-License-Identifier: BSL-1.0
# Finds standalone Asio 1.28 or newer, which ships neither a CMake nor (everywhere) a pkg-config
# file. Defines Asio::asio. Point it elsewhere with Asio_INCLUDE_DIR or CMAKE_PREFIX_PATH.
find_path(Asio_INCLUDE_DIR asio/version.hpp)
mark_as_advanced(Asio_INCLUDE_DIR)

if(Asio_INCLUDE_DIR)
  file(STRINGS "${Asio_INCLUDE_DIR}/asio/version.hpp" _asio_line REGEX "define ASIO_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+" _asio_number "${_asio_line}")
  if(_asio_number)
    math(EXPR _asio_major "${_asio_number} / 100000")
    math(EXPR _asio_minor "${_asio_number} / 100 % 1000")
    math(EXPR _asio_patch "${_asio_number} % 100")
    set(Asio_VERSION "${_asio_major}.${_asio_minor}.${_asio_patch}")
  endif()
endif()

set(_asio_minimum 1.28.0)
if(Asio_FIND_VERSION AND Asio_FIND_VERSION VERSION_GREATER _asio_minimum)
  set(_asio_minimum "${Asio_FIND_VERSION}")
endif()
set(Asio_FOUND FALSE)
if(Asio_VERSION AND Asio_VERSION VERSION_GREATER_EQUAL _asio_minimum)
  set(Asio_FOUND TRUE)
endif()

if(Asio_FOUND AND NOT TARGET Asio::asio)
  add_library(Asio::asio INTERFACE IMPORTED)
  set_target_properties(Asio::asio PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Asio_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS ASIO_STANDALONE)
elseif(NOT Asio_FOUND)
  if(Asio_VERSION)
    set(_asio_seen "${Asio_VERSION} in ${Asio_INCLUDE_DIR} is too old")
  else()
    set(_asio_seen "none was found")
  endif()
  set(Asio_NOT_FOUND_MESSAGE "weft needs standalone Asio ${_asio_minimum} or newer (${_asio_seen}): \
run `./dev deps --install`, or unpack a newer Asio and configure with -DAsio_INCLUDE_DIR=<its include folder>.")
  if(Asio_FIND_REQUIRED)
    message(FATAL_ERROR "${Asio_NOT_FOUND_MESSAGE}")
  elseif(NOT Asio_FIND_QUIETLY)
    message(STATUS "${Asio_NOT_FOUND_MESSAGE}")
  endif()
endif()
