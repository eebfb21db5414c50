// SPDX-License-Identifier: BSL-1.0
// Users' code that runs inside weft's own handlers.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <exception>
#include <utility>

namespace weft::detail {

/// Runs `resume`, which continues users' coroutines. What a completion handler of theirs throws
/// leaves `context.run()` from a handler of its own: it is no error of the link or the batch that
/// happened to resume it.
template <class Resume>
void resume_users(asio::io_context& context, Resume&& resume) {
  try {
    std::forward<Resume>(resume)();
  } catch (...) {
    asio::post(context, [thrown = std::current_exception()] { std::rethrow_exception(thrown); });
  }
}

}  // namespace weft::detail
