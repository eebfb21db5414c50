// SPDX-License-Identifier: BSL-1.0
// The handshake: who is there, does it know the job's token, and which connection stays?
//
//   connecting side                                accepting side
//     hello {weft, features, for, rank, to,   ───►   judges versions and identities
//            incarnation, nonce}
//                                             ◄───   challenge {weft, features, for, rank, to,
//     checks the proof                                 incarnation, nonce, proof}
//     proof {proof}                           ───►   checks it; decides which connection stays
//                                             ◄───   welcome {}
//     ready {}, and at once whatever waited ───►   from now on, so may this side
//
// Until it is ready the connecting side may still give up, and closing the connection says so: only
// then is a closed connection the loss of a peer.
//
// Instead of any answer: refuse, whose payload is an error (wire/error_codec.hpp); then the
// connection is closed. The other payloads are JSON objects, whose unknown members are ignored:
// `weft`, `rank` and `to` are numbers, `features` is a list of texts, the others are texts. What
// both sides name among their features may be used: "bulk", a second connection for large tensors
// (wire/header.hpp). `for` is what the connection is for, "calls" or "bulk".
// `incarnation` and `nonce` are 32 hexadecimal digits, the nonces fresh for each connection. The
// token itself never travels. A `proof` is HMAC-SHA256, as 64 hexadecimal digits; its key is the
// token as 32 hexadecimal digits (all digits are lower case), its text these lines, each with its
// line end, where the first says "accepts" in the challenge and "connects" in the proof, <weft> is
// the wire version, and <for> as in the hello:
//
//   weft <weft> accepts for <for>
//   <rank> <incarnation> <nonce>        of the connecting side
//   <rank> <incarnation> <nonce>        of the accepting side
//
// So a proof is good for one connection, one direction and one pair of processes: it can be neither
// replayed nor reflected. Who sits on the path may still read and change what follows; only an
// encrypted transport helps against that.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/random.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/wire/frame.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::engine {

/// One side of one handshake: a state machine without sockets, clock and threads. Frames go in, the
/// frames to be sent come out; after each, `current_state()` says how it stands. What closes the
/// connection, and when, is the caller's matter. One thread at a time; `all` must outlive it.
///
///   handshake h(all, to, random);                         handshake h(all, random);
///   write(h.hello());                                     // its state is waiting
///   for each frame while it is waiting:
///     if (auto answer = h.arrived(f)) write(*answer);       // the same
///   accepted: a member, and what comes                    proven: decide which connection
///     behind is none of its frames                          stays, then write(h.welcome()) and go
///   refused: `why()`                                        on, or write(h.refuse(why))
class handshake {
 public:
  enum class state : std::uint8_t {
    waiting,   ///< for the other side's next frame
    proven,    ///< accepting side only: it is that member; `welcome` or `refuse`
    accepted,  ///< anything may be sent and received
    refused    ///< `why()`; to be closed once what was returned is written
  };

  enum class purpose : std::uint8_t { calls, bulk };
  static constexpr std::string_view feature_bulk = "bulk";

  /// The connecting side.
  handshake(const membership& all, std::uint32_t to, random_source& random,
            purpose what = purpose::calls)
      : all_(all),
        peer_(to),
        nonce_(random_id(random)),
        step_(step::challenge),
        bulk_(what == purpose::bulk) {}
  /// The accepting side.
  handshake(const membership& all, random_source& random)
      : all_(all), nonce_(random_id(random)), step_(step::hello) {}

  /// The connecting side's first frame.
  [[nodiscard]] frame hello() const;

  /// A whole frame arrived; what to send now, if anything.
  [[nodiscard]] std::optional<frame> arrived(frame&& f);

  /// Instead of a frame came bytes that are none, or nothing: the connection's error. A peer of
  /// another wire version is told so.
  [[nodiscard]] std::optional<frame> failed(const error& reason);

  /// Accepting side, once it is proven: this connection stays, if the other side is ready, or it
  /// does not.
  [[nodiscard]] frame welcome();
  [[nodiscard]] frame refuse(const error& reason);

  [[nodiscard]] state current_state() const noexcept { return now_; }
  /// The other side's rank. Requires that it is proven or accepted.
  [[nodiscard]] std::uint32_t peer() const noexcept { return peer_; }
  /// What the connection is for. Requires the same.
  [[nodiscard]] bool is_for_bulk() const noexcept { return bulk_; }
  /// The peer takes connections for bulk. Requires the same.
  [[nodiscard]] bool peer_takes_bulk() const noexcept { return has_bulk_; }
  /// Why it was refused. `closed`, from a peer that is a member, means that another connection
  /// between the two stays; from anybody else it never comes out of here.
  [[nodiscard]] const error& why() const noexcept { return why_; }

 private:
  enum class step : std::uint8_t { hello, challenge, proof, welcome, ready, over };
  struct introduction;

  [[nodiscard]] std::optional<frame> on_hello(const frame& f);
  [[nodiscard]] std::optional<frame> on_challenge(const frame& f);
  [[nodiscard]] std::optional<frame> on_proof(const frame& f);
  void on_refusal(const frame& f);
  [[nodiscard]] introduction introduce() const;
  void agree(const introduction& theirs) noexcept;
  [[nodiscard]] expected<void> judge(const introduction& theirs) const;
  [[nodiscard]] std::string proof_of(bool accepting) const;
  [[nodiscard]] std::string speaker(bool accepting) const;
  void end(state s, error reason = {}) {
    now_ = s;
    step_ = step::over;
    why_ = std::move(reason);
  }

  const membership& all_;
  std::uint32_t peer_ = 0;
  id128 nonce_;
  id128 their_nonce_;
  step step_;
  state now_ = state::waiting;
  bool connects_ = step_ == step::challenge;
  bool bulk_ = false;
  bool has_bulk_ = false;
  bool member_ = false;  ///< the other side has proved to know the token
  error why_;
};

}  // namespace weft::engine

#include <weft/engine/link/impl/handshake.hpp>
