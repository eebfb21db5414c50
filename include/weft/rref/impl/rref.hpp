// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rref/rref.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/rpc/detail/call_check.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/called.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/detail/looking.hpp>
#include <weft/rpc/detail/upcast.hpp>
#include <weft/rref/detail/fetch.hpp>
#include <weft/rref/detail/handle.hpp>
#include <weft/rref/rref.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/sentence.hpp>
#include <weft/wire/detail/undescribed.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace weft {
namespace detail {

struct rref_access {
  template <class T>
  static rref<T> make(worker& me, intrusive_ptr<reference> held) {
    return rref<T>(me, std::move(held));
  }
  template <class T>
  static intrusive_ptr<reference> held(rref<T>&& r) {
    return std::move(r.held_);
  }
};

template <class T>
inline constexpr bool can_be_sent_here = std::is_copy_constructible_v<T> && encodable<T>;

/// rref<T>.to_here()
template <class T>
consteval bool check_to_here() {
  if constexpr (refused_by_structure<T>) {
    refuse_structure<typename undescribed<T>::type>();
  } else {
    WEFT_REQUIRE((can_be_sent_here<T>),
                 "weft: to_here needs a T that can be copied and sent; call its members instead.",
                 "weft: to_here needs a T that can be copied and sent, not ", spelled<T>(),
                 "; call its members instead.");
  }
  return true;
}

/// Puts the object that a request is for, and the result that stays, into its message.
struct prepare_reference {
  worker& me;
  intrusive_ptr<reference> target;
  std::optional<rref_protocol::creation> create;

  void operator()(message& m) const {
    if (target && target->broken()) throw rpc_error(target->broken());
    // Users of the result may be on their way as soon as this returns: told here, they are told
    // why. Else the service looks when it attaches.
    if (target && create) {
      if (error why = me.use<rref_service>().state_of(*target)) throw rpc_error(std::move(why));
    }
    auto& handover = m.record().get<rref_handover>();
    handover.target = target;
    handover.create = create;
  }
};

/// For the user of a reference, a lost peer is a lost owner.
[[nodiscard]] inline error as_owner_loss(const error& e) {
  if (!(e == errc::peer_died)) return e;
  return error(make_error_code(errc::rref_owner_died), e.shared_detail());
}

struct blame_owner {
  static error error_of(const error& e) { return as_owner_loss(e); }
};

[[noreturn]] inline void refuse_empty() {
  throw rpc_error(errc::invalid_argument, "the reference is empty");
}

/// A copy may be made again.
template <class T>
inline constexpr repeats repeats_of<fetch_function<T>> = repeats::anything;
template <auto F>
inline constexpr repeats repeats_of<looking<F>> = repeats_of<exposed<F>>;

/// Fn as its caller sees it when the result stays: the reply carries nothing.
template <class Fn>
struct kept : Fn {
  using original = Fn;
  using result = void;
};

/// A reference whose request has not begun. If it never does, its users hear of it.
class unbegun_creation {
 public:
  unbegun_creation(worker& me, std::string_view function, intrusive_ptr<reference> held) noexcept
      : me_(&me), function_(function), held_(std::move(held)) {}
  unbegun_creation(unbegun_creation&&) noexcept = default;
  unbegun_creation& operator=(unbegun_creation&&) = delete;
  ~unbegun_creation() {
    if (!held_) return;
    me_->use<rref_service>().never_sent(
        held_->id(), function_, error(errc::cancelled, "it never began", call_progress::not_sent));
  }
  [[nodiscard]] intrusive_ptr<reference> begin() noexcept { return std::move(held_); }

 private:
  worker* me_;
  std::string_view function_;
  intrusive_ptr<reference> held_;
};

/// Sees to it that the users of a reference hear of a request that was never sent. If it was, the
/// owner keeps the error.
struct creation_follower {
  worker& me;
  intrusive_ptr<reference> held;

  void operator()(const call_result& r, const outgoing_call& c) const {
    if (r.reply || r.failure.ran() != call_progress::not_sent) return;
    me.use<rref_service>().never_sent(held->id(), c.function().name, c.to().describe(r.failure, c));
  }
};

/// A creation that waits for room, or for its worker's thread.
template <class Fn>
asio::awaitable<void> create_later(outgoing_call c, typename Fn::arguments arguments,
                                   prepare_reference prepare, unbegun_creation made) {
  const creation_follower follow{prepare.me, made.begin()};
  const arguments_body<typename Fn::arguments, prepare_reference> body(arguments, prepare);
  try {
    follow(co_await c.to().send_later(c, body), c);
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }
}

/// Sends a request whose result stays at its owner; a failure is met by the reference's users. What
/// the conversion of an argument throws is thrown here, before anything is promised to anybody.
template <class Fn, class... Args>
intrusive_ptr<reference> remote_call(worker& me, std::uint32_t owner,
                                     intrusive_ptr<reference> target, Args&&... args) {
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  const call_settings settings = split::options(given);
  // NOLINTNEXTLINE(bugprone-use-after-move): the options are behind the arguments
  typename Fn::arguments arguments = split::arguments(std::move(given));
  link& to = me.link_to(owner);
  auto made = me.use<rref_service>().create(owner);
  if (!made) {
    return make_intrusive<reference>(rref_id{owner, me.rank(), 0}, as_owner_loss(to.reason()));
  }
  unbegun_creation unbegun(me, Fn::name(), made->reference);
  outgoing_call c(to, entry_of<kept<Fn>>(to), settings);
  prepare_reference prepare{me, std::move(target), made->what};
  if (me.on_thread()) {
    const arguments_body<typename Fn::arguments, prepare_reference> body(arguments, prepare);
    if (send_then(c, body, {}, creation_follower{me, made->reference})) {
      static_cast<void>(unbegun.begin());
      return std::move(made->reference);
    }
  }
  start_on(me.get_executor(), create_later<Fn>(std::move(c), std::move(arguments),
                                               std::move(prepare), std::move(unbegun)))
      .detach();
  return std::move(made->reference);
}

}  // namespace detail

namespace detail {
/// Of which type functions are called through an rref<T>, and how: objects that are no plain ones
/// say so (weft/rref/exclusive.hpp).
template <class T>
struct called_object {
  using type = T;
  template <class Fn>
  using call = Fn;
};
template <class T>
using object_called = typename called_object<T>::type;
/// What a call of F with these arguments calls, options included.
template <auto F, class T, class... Args>
using on_rref = called<typename called_object<T>::template call<on_object<F>>, Args...>;
}  // namespace detail

template <class T>
template <detail::derived_class<T> Derived>
rref<T>::rref(rref<Derived> derived) noexcept : me_(derived.me_), held_(std::move(derived.held_)) {
  detail::expose_base<Derived, T>();
}

template <class T>
std::shared_ptr<T> rref<T>::local() const {
  return std::static_pointer_cast<T>(service().local(*held_, type_key<T>));
}

template <class T>
rref_service& rref<T>::service() const {
  if (!held_) detail::refuse_empty();
  return me_->use<rref_service>();
}

template <class T>
template <class... Options>
auto rref<T>::to_here(Options&&... options) const
    -> asio::awaitable<detail::call_return<T, Options...>> {
  static_assert((is_call_option<std::remove_cvref_t<Options>> && ...),
                "weft: to_here takes options only, such as weft::within(2s)");
  static_assert(detail::check_to_here<T>());
  if (!held_) detail::refuse_empty();
  return detail::make_call<detail::fetch_function<T>, detail::blame_owner>(
      owner().link(), detail::prepare_reference{*me_, held_, std::nullopt},
      std::forward<Options>(options)...);
}

template <class T>
template <auto M, class... Args>
auto rref<T>::call(Args&&... args) const
    -> asio::awaitable<detail::call_return<typename function<M>::result, Args...>> {
  static_assert(detail::check_object_call<M, detail::object_called<T>, Args...>());
  detail::expose_base<detail::object_called<T>, typename detail::on_object<M>::object>();
  static_assert(detail::check_result<M>());
  if (!held_) detail::refuse_empty();
  return detail::make_call<detail::on_rref<M, T, Args...>, detail::blame_owner>(
      owner().link(), detail::prepare_reference{*me_, held_, std::nullopt},
      std::forward<Args>(args)...);
}

template <class T>
template <auto M, class... Args>
auto rref<T>::start(Args&&... args) const -> future<typename function<M>::result> {
  static_assert(detail::check_object_call<M, detail::object_called<T>, Args...>());
  detail::expose_base<detail::object_called<T>, typename detail::on_object<M>::object>();
  static_assert(detail::check_result<M>());
  static_assert(!detail::wants_expected<Args...>,
                "weft: start takes no as_expected; await the future and catch rpc_error");
  if (!held_) detail::refuse_empty();
  return detail::start_call<detail::on_rref<M, T, Args...>, detail::blame_owner>(
      owner().link(), detail::prepare_reference{*me_, held_, std::nullopt},
      std::forward<Args>(args)...);
}

template <class T>
template <auto M, class... Args>
void rref<T>::post(Args&&... args) const {
  static_assert(detail::check_object_call<M, detail::object_called<T>, Args...>());
  detail::expose_base<detail::object_called<T>, typename detail::on_object<M>::object>();
  static_assert(!detail::wants_retry<Args...>,
                "weft: post does not take retry, because no reply says whether it failed; use "
                "call or start");
  if (!held_) detail::refuse_empty();
  detail::post_call<detail::on_rref<M, T, Args...>>(
      owner().link(), detail::prepare_reference{*me_, held_, std::nullopt},
      std::forward<Args>(args)...);
}

template <class T>
template <auto M, class... Args>
auto rref<T>::remote(Args&&... args) const -> detail::remote_reference<M> {
  static_assert(detail::check_object_call<M, detail::object_called<T>, Args...>());
  detail::expose_base<detail::object_called<T>, typename detail::on_object<M>::object>();
  static_assert(!detail::wants_expected<Args...>,
                "weft: remote does not take as_expected, because its errors appear where the "
                "reference is used");
  static_assert(!detail::wants_retry<Args...>,
                "weft: remote does not take retry, because its errors appear where the reference "
                "is used; use call, or retry there");
  if (!held_) detail::refuse_empty();
  return detail::remote_reference<M>(
      *me_, detail::remote_call<detail::on_rref<M, T, Args...>>(*me_, held_->id().owner, held_,
                                                                std::forward<Args>(args)...));
}

template <class T>
rref<T> worker::share(T value) {
  static_assert(std::is_move_constructible_v<T>,
                "weft: share moves its argument to its final place, but this type cannot be moved: "
                "me.peer(me.rank()).make<T>(...) builds it in place");
  return rref<T>(*this,
                 use<rref_service>().share(std::make_shared<T>(std::move(value)), type_key<T>));
}

template <class T>
rref<T> worker::share(std::shared_ptr<T> object) {
  static_assert(!std::is_const_v<T>,
                "weft: a shared object cannot be const, because others call its functions: share a "
                "std::shared_ptr<T>");
  if (!object) throw rpc_error(errc::invalid_argument, "there is no object to share");
  return rref<T>(*this, use<rref_service>().share(std::move(object), type_key<T>));
}

/// On the wire: the number of the reference in the message's rref section; 2^32 - 1 is empty. The
/// same reference has the same number wherever it is in the message.
template <class T>
struct codec<rref<T>> {
  static constexpr std::size_t min_size = 4;
  static constexpr std::uint32_t empty = 0xffffffff;

  static void encode(writer& w, const rref<T>& value) {
    if (!value.held_) {
      w.number(empty);
      return;
    }
    w.number(w.extension<rref_handover>().add(value.held_));
  }
  static rref<T> decode(reader& r) {
    const auto index = r.number<std::uint32_t>();
    if (index == empty) return {};
    auto& handover = r.extension<rref_handover>();
    if (index >= handover.references.size() || !handover.here) {
      r.fail("a reference that is not in the message");
    }
    return rref<T>(*handover.here, handover.references[index]);
  }
};

template <class T>
struct structure<rref<T>> {
  static constexpr std::string_view tag = "weft::rref 1";
};

}  // namespace weft
