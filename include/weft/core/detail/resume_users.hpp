// SPDX-License-Identifier: BSL-1.0
// Users' code that runs inside weft's own handlers.
#pragma once

#include <asio/post.hpp>

#include <exception>
#include <utility>

namespace weft::detail {

/// Runs `resume`, which continues users' coroutines, or cancels them. What a handler of theirs
/// throws leaves `run()` of the io_context `where`, or of that executor's, from a handler of its
/// own: it is no error of the link or the batch that happened to resume it.
template <class Where, class Resume>
void resume_users(Where& where, Resume&& resume) {
  try {
    std::forward<Resume>(resume)();
  } catch (...) {
    asio::post(where, [thrown = std::current_exception()] { std::rethrow_exception(thrown); });
  }
}

}  // namespace weft::detail
