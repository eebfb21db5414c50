# SPDX-License-Identifier: BSL-1.0
# Notes in STAMP whether a header that has just compiled alone reaches ATen.
file(STRINGS "${DEPENDS}" aten REGEX "/ATen/" LIMIT_COUNT 1)
if(aten)
  file(WRITE "${STAMP}" "tensor\n")
else()
  file(WRITE "${STAMP}" "pure\n")
endif()
