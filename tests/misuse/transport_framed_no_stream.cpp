// expect: weft: a byte stream must provide .*async_read_some
// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/framed.hpp>

struct pipe_of_mine {
  using executor_type = asio::io_context::executor_type;
  executor_type get_executor();
  void close(std::error_code&);
};

using connection = weft::framed<pipe_of_mine>;
bool write(connection& c, weft::outbox& batch) {
  return c.try_write(batch) == weft::write_status::everything;
}
