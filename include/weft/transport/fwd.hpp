// SPDX-License-Identifier: BSL-1.0
// Names of weft's own transports.
#pragma once

namespace weft {

class inproc;
class tcp;
class unix_socket;

}  // namespace weft
