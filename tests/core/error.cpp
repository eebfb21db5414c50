// SPDX-License-Identifier: BSL-1.0
#include <weft/core/error.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

namespace core_error {

using namespace weft;

TEST_CASE("error: a default-constructed one means success") {
  const error none;
  CHECK_FALSE(none);
  CHECK(none.message() == "success");
  CHECK_FALSE(none.cause());
  CHECK(none.detail().text.empty());
}

TEST_CASE("error: 24 bytes at most, and copies share the detail") {
  CHECK(sizeof(error) <= 24);
  const error a(errc::timed_out, "no reply");
  const error b = a;  // NOLINT: the copy is what is tested
  CHECK(a.shared_detail() == b.shared_detail());
}

TEST_CASE("error: the sentence names function, worker, cause and how far it got") {
  const error e = error(errc::timed_out, "no reply by the deadline", call_progress::maybe_executed)
                      .with([](error_detail& d) {
                        d.function = "app::f";
                        d.peer = "ps";
                        d.elapsed = std::chrono::milliseconds(250);
                        d.cause_code = make_error_code(errc::peer_died);
                      });
  const std::string text = e.message();
  CHECK(text ==
        "call of 'app::f' on worker 'ps': timed out: no reply by the deadline (after 250 ms) "
        "[maybe executed]; caused by: peer died");
  CHECK(error(errc::peer_died, "gone").with([](error_detail& d) { d.peer = "ps"; }).message() ==
        "worker 'ps': peer died: gone");
}

// How many times `part` stands in `text`.
int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("error: what the text already says is not said again") {
  const auto of_w3 = [](error_detail& d) { d.peer = "w3"; };
  const error lost = error(errc::peer_died, "the peer closed the connection").with(of_w3);
  const std::string once = "worker 'w3': peer died: the peer closed the connection";
  CHECK(lost.message() == once);
  CHECK(error(errc::peer_died, lost.message()).with(of_w3).message() == once);
  CHECK(error(errc::worker_failed, lost.message()).message() == "worker failed: " + once);
  // Another worker's story is another one.
  CHECK(error(errc::peer_died, lost.message())
            .with([](error_detail& d) { d.peer = "w4"; })
            .message() == "worker 'w4': peer died: " + once);
}

TEST_CASE("error: a cause that the text quotes is not said again") {
  const error inner = error(errc::remote_exception, "no such layer", call_progress::executed)
                          .with([](error_detail& d) {
                            d.function = "app::forward";
                            d.peer = "w2";
                            d.elapsed = std::chrono::milliseconds(3);
                          });
  const error outer = error(errc::remote_exception, inner.message(), call_progress::executed)
                          .with([&](error_detail& d) {
                            d.function = "app::step";
                            d.peer = "w1";
                            d.cause_code = inner.code();
                            d.cause = inner.shared_detail();
                          });
  const std::string text = outer.message();
  CHECK(text ==
        "call of 'app::step' on worker 'w1': remote exception [executed]; caused by: call of "
        "'app::forward' on worker 'w2': remote exception: no such layer (after 3 ms) [executed]");
  CHECK(outer.cause().message() == inner.message());
  const error twice = error(errc::rref_lost, outer.message()).with([&](error_detail& d) {
    d.cause_code = outer.code();
    d.cause = outer.shared_detail();
  });
  CHECK(times(twice.message(), "no such layer") == 1);
  CHECK(times(twice.message(), "app::step") == 1);
  // What a reference keeps, and whoever uses it meets.
  const error kept = error(errc::remote_exception, "no such layer", call_progress::executed)
                         .with([](error_detail& d) { d.peer = "w1"; });
  const error met = error(errc::remote_exception, kept.message(), call_progress::executed)
                        .with([&](error_detail& d) {
                          d.function = "app::forward";
                          d.peer = "w1";
                          d.cause_code = kept.code();
                          d.cause = kept.shared_detail();
                        });
  CHECK(met.message() ==
        "call of 'app::forward' on worker 'w1': remote exception: no such layer [executed]");
  const error longer = outer.with([](error_detail& d) { d.text = "while stepping: " + d.text; });
  CHECK(times(longer.message(), "no such layer") == 1);
}

TEST_CASE("error: with changes a copy and keeps everything else") {
  const error a =
      error(errc::remote_exception, "boom", call_progress::executed, origin::remote_user)
          .with([](error_detail& d) {
            d.remote_type = "std::runtime_error";
            d.incarnation = 7;
            d.deadline = std::chrono::seconds(2);
            d.cause_code = make_error_code(errc::closed);
          });
  const error b = a.with([](error_detail& d) { d.peer = "p"; });
  CHECK(a.detail().peer.empty());
  CHECK(b.detail().peer == "p");
  CHECK(b.code() == a.code());
  CHECK(b.detail().text == "boom");
  CHECK(b.detail().from == origin::remote_user);
  CHECK(b.ran() == call_progress::executed);
  CHECK(b.detail().remote_type == "std::runtime_error");
  CHECK(b.detail().incarnation == 7);
  CHECK(b.detail().deadline == std::chrono::seconds(2));
  CHECK(b.cause() == errc::closed);
}

TEST_CASE("error: a cause keeps its own story, and its cause") {
  const error root(errc::closed, "root");
  const error middle = error(errc::peer_died, "middle").with([&](error_detail& d) {
    d.cause_code = root.code();
    d.cause = root.shared_detail();
  });
  const error top = error(errc::remote_exception, "top").with([&](error_detail& d) {
    d.cause_code = middle.code();
    d.cause = middle.shared_detail();
  });
  CHECK(top.cause() == errc::peer_died);
  CHECK(top.cause().detail().text == "middle");
  CHECK(top.cause().cause() == errc::closed);
  CHECK(top.cause().cause().detail().text == "root");
  CHECK_FALSE(top.cause().cause().cause());
}

TEST_CASE("error: rpc_error is a system_error with weft's code and the sentence") {
  try {
    throw rpc_error(errc::unknown_peer, "no worker is named 'x'");
  } catch (const std::system_error& e) {
    CHECK(e.code() == errc::unknown_peer);
    CHECK(e.code().category() == category());
    CHECK(std::string(e.what()) == "unknown peer: no worker is named 'x'");
  }
  const rpc_error copied = rpc_error(errc::closed, "c");
  CHECK(copied.error() == errc::closed);
}

TEST_CASE("error: every code has words of its own") {
  for (int code = 1; code <= static_cast<int>(errc::ambiguous_function); ++code) {
    CAPTURE(code);
    CHECK(category().message(code) != "unknown error");
    for (int other = 1; other < code; ++other) {
      CHECK(category().message(code) != category().message(other));
    }
  }
  CHECK(category().message(1000) == "unknown error");
}

}  // namespace core_error
