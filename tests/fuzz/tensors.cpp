// SPDX-License-Identifier: BSL-1.0
// What only a program with libtorch decodes: tensors wherever they stand in a message, what
// optimizers and modules are sent, autograd's frames, and all of it said to a real worker by a
// member that has proved to be one. A value or a typed error; of a value, all that it promises.
//
// The first byte says what is decoded, the second where the memory comes from and how it is
// received; then tensors (hostile_tensors.hpp), then the payload.
#include "hostile_tensors.hpp"
#include "scene.hpp"
#include <weft/autograd/frame.hpp>
#include <weft/autograd/messages.hpp>
#include <weft/autograd/nodes.hpp>
#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/engine/services/services.hpp>
#include <weft/optim/distributed.hpp>
#include <weft/optim/module.hpp>
#include <weft/optim/options.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/callback.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/section.hpp>
#include <weft/rref/sharded.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/drop_tensors.hpp>
#include <weft/wire/detail/tensor_table.hpp>
#include <weft/wire/tensor.hpp>
#include <weft/wire/tensor_values.hpp>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

namespace hostile_tensors {

using namespace std::chrono_literals;
using namespace weft_fuzz;
using torch::optim::Adam;
using torch::optim::SGD;
using weft::rpc_error;

// ── values ──

struct everything {
  at::Tensor one;
  std::vector<at::Tensor> many;
  std::optional<at::Tensor> maybe;
  std::map<std::string, at::Tensor> named;
  std::vector<std::vector<std::pair<std::int32_t, at::Tensor>>> nested;
  std::variant<double, at::Tensor, c10::Scalar> choice;
  std::unique_ptr<at::Tensor> owned;
  std::tuple<c10::Device, c10::ScalarType, c10::Scalar> small;
  std::vector<c10::Scalar> scalars;
};

/// Every tensor of a value, in order.
struct visit_tensors {
  std::vector<at::Tensor>& out;

  void operator()(const at::Tensor& t) const { out.push_back(t); }
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T&) const {}
  void operator()(const std::string&) const {}
  void operator()(const c10::Scalar&) const {}
  void operator()(const c10::Device&) const {}
  template <class T>
  void operator()(const std::vector<T>& all) const {
    for (const T& each : all) (*this)(each);
  }
  template <class K, class T>
  void operator()(const std::map<K, T>& all) const {
    for (const auto& [key, each] : all) (*this)(each);
  }
  template <class T>
  void operator()(const std::optional<T>& t) const {
    if (t) (*this)(*t);
  }
  template <class T>
  void operator()(const std::unique_ptr<T>& t) const {
    if (t) (*this)(*t);
  }
  template <class A, class B>
  void operator()(const std::pair<A, B>& both) const {
    (*this)(both.first), (*this)(both.second);
  }
  template <class... T>
  void operator()(const std::tuple<T...>& all) const {
    std::apply([this](const auto&... each) { ((*this)(each), ...); }, all);
  }
  template <class... T>
  void operator()(const std::variant<T...>& any) const {
    std::visit(*this, any);
  }
  void operator()(const everything& e) const {
    (*this)(e.one), (*this)(e.many), (*this)(e.maybe), (*this)(e.named), (*this)(e.nested);
    (*this)(e.choice), (*this)(e.owned);
  }
};

// ── messages ──

enum class received_as : std::uint8_t { plain, only_read, recorded, unrecorded };

/// How the message of an input came.
struct way {
  sent_from from;
  received_as as;
};
way way_of(std::uint8_t b) {
  return {static_cast<sent_from>(b % 8 < 5 ? b % 8 : 0), static_cast<received_as>(b >> 3 & 3)};
}
[[nodiscard]] bool of_this_process(sent_from f) {
  return f == sent_from::here || f == sent_from::here_and_kept;
}

/// One that arrived; its rref section was read, and has these references.
class arrived {
 public:
  arrived(given_bytes& in, way how) : how_(how) {
    described_tensors tensors = read_tensors(in, how.from, lent_);
    weft::message m;
    for (weft::blob& b : tensors.buffers) static_cast<void>(m.add_blob(std::move(b)));
    m.section(weft::section_kind::tensors, tensors.section.view());
    const auto rest = in.rest();
    m.payload().raw(rest.data(), rest.size());
    message_.emplace(std::move(m).finish({}));
    if (!message_->check()) broken();
    receive_as();
  }
  /// What a value becomes on its way.
  explicit arrived(weft::frame f) : how_{} {
    message_.emplace(std::move(f));
    if (!message_->check()) broken();
    receive_as();
  }
  arrived(const arrived&) = delete;
  arrived& operator=(const arrived&) = delete;

  [[nodiscard]] weft::incoming_message& message() noexcept { return *message_; }
  void look_at_all(const std::vector<at::Tensor>& all) const {
    std::uint64_t sum = 0;
    for (const at::Tensor& t : all) {
      sum += look_at(t);
      if (t.defined() && t.layout() == at::kStrided && t.scalar_type() == at::kBool &&
          t.numel() <= most_elements && !of_this_process(how_.from)) {
        for_each_element(t, [](const std::byte* each) {
          if (static_cast<unsigned>(*each) > 1) broken();
        });
      }
    }
    static volatile std::uint64_t all_sums = 0;
    all_sums = all_sums + sum;
  }

 private:
  void receive_as() {
    auto& table = message_->record().get<weft::tensor_table>();
    table.only_read = how_.as == received_as::only_read;
    if (how_.as == received_as::plain || how_.as == received_as::only_read) return;
    const std::uint64_t number = how_.as == received_as::recorded ? 5 : 0;
    table.on_received = [number](std::span<at::Tensor> tensors, const std::vector<bool>& computed) {
      try {
        weft::autograd::receive(tensors, computed, {.peer = 1, .message = number});
      } catch (const std::exception& e) {  // as the service does
        throw rpc_error(weft::errc::bad_arguments, e.what());
      }
    };
  }

  way how_;
  lent_memory lent_;
  std::optional<weft::incoming_message> message_;
};

template <class T>
std::vector<at::Tensor> tensors_in(const T& value) {
  std::vector<at::Tensor> out;
  visit_tensors{out}(value);
  return out;
}

/// What was decoded can be sent, and arrives as it is.
template <class T>
void send_on(const T& value) {
  weft::message m;
  weft::encode(m.payload(), value);
  auto f = weft_test::copy_of(std::move(m).finish({}));
  if (!f) broken();
  arrived again(std::move(*f));
  weft::reader r = again.message().payload();
  const T same = weft::decode<T>(r);
  r.finish();
  const auto before = tensors_in(value);
  const auto after = tensors_in(same);
  again.look_at_all(after);
  if (!std::ranges::equal(before, after, same_bits)) broken();
}

template <class T>
void decode_as(given_bytes& in, way how) {
  arrived it(in, how);
  std::optional<T> value;
  try {
    weft::reader r = it.message().payload();
    value.emplace(weft::decode<T>(r));
    r.finish();
  } catch (const rpc_error&) {
    return;
  }
  it.look_at_all(tensors_in(*value));
  send_on(*value);
}

/// A request that goes on to another worker as it came.
void pass_on(given_bytes& in, way how) {
  arrived it(in, how);
  std::optional<weft::frame> f;
  try {
    weft::message goes;
    weft::detail::pass_tensors_on(it.message(), goes);
    goes.same_payload(it.message());
    f.emplace(std::move(goes).finish({}));
  } catch (const rpc_error&) {
    return;
  }
  const std::vector<at::Tensor> before = it.message().record().get<weft::tensor_table>().take();
  it.look_at_all(before);
  auto copy = weft_test::copy_of(*f);
  if (!copy) broken();
  arrived again(std::move(*copy));
  if (before.empty()) return;
  auto& table = again.message().record().get<weft::tensor_table>();
  weft::reader r = again.message().payload();
  table.open(r);
  const std::vector<at::Tensor> after = table.take();
  again.look_at_all(after);
  if (!std::ranges::equal(before, after, same_bits)) broken();
}

/// A frame of autograd's, as its service begins to read it.
void unseal(given_bytes& in, way how) {
  arrived it(in, how);
  weft::autograd::unsealed came;
  try {
    came = weft::autograd::unseal(it.message());
  } catch (const rpc_error&) {
    return;
  }
  it.look_at_all(came.tensors);
  weft::detail::byte_source ranks(came.what);
  static_cast<void>(weft::autograd::detail::read_ranks(ranks, 4));
  const auto message = weft::autograd::decode(came.what);
  if (!message) return;
  const auto bytes = weft::autograd::encode(*message);
  if (!std::ranges::equal(bytes, came.what)) broken();
  // Those who seal gradients leave out what is none (autograd/pass.hpp).
  std::erase_if(came.tensors, [](const at::Tensor& t) { return !t.defined(); });
  auto f = weft_test::copy_of(weft::autograd::seal(bytes, weft::default_limits, came.tensors));
  if (!f) broken();
  arrived again(std::move(*f));
  const weft::autograd::unsealed same = weft::autograd::unseal(again.message());
  again.look_at_all(same.tensors);
  if (!std::ranges::equal(same.what, came.what)) broken();
  if (!std::ranges::equal(same.tensors, came.tensors, same_bits)) broken();
}

/// Memory lacked for its tensors.
void drop(given_bytes& in, way how) {
  arrived it(in, how);
  auto f = weft_test::copy_of(it.message().whole());
  if (!f || !weft::detail::drop_tensors(*f)) broken();
  arrived rest(std::move(*f));
  if (rest.message().section(weft::section_kind::tensors)) broken();
  if (!std::ranges::equal(rest.message().whole().payload(), it.message().whole().payload())) {
    broken();
  }
}

// ── optimizers and modules ──

/// Whether libtorch has said so: as this or as a c10::Error, which stays behind.
bool in_libtorchs_words(const std::runtime_error& e) {
  return typeid(e) == typeid(std::runtime_error);
}

/// What is kept is what was given, as numbers of the parameter's kind.
bool same_state(const weft::optim::parameter_state& given,
                const weft::optim::parameter_state& kept) {
  return std::ranges::equal(given, kept, [](const auto& a, const auto& b) {
    const at::Tensor& t = b.second;
    return a.first == b.first &&
           same_bits(a.second.detach().to(t.scalar_type()).reshape(t.sizes()), t);
  });
}

/// Over two parameters of this process that nobody else sees.
template <class Optimizer>
void give_state(given_bytes& in, way how) {
  using namespace weft::optim;
  using options = typename optimizer_traits<Optimizer>::options;
  arrived it(in, how);
  std::optional<std::pair<options, std::vector<parameter_state>>> given;
  try {
    weft::reader r = it.message().payload();
    given.emplace(weft::decode<std::pair<options, std::vector<parameter_state>>>(r));
    r.finish();
  } catch (const rpc_error&) {
    return;
  }
  it.look_at_all(tensors_in(given->second));
  const std::vector<at::Tensor> parameters = {at::ones({2, 3}), at::ones({1})};
  for (const at::Tensor& p : parameters) p.set_requires_grad(true);
  weft::optim::detail::aliased_optimizer<Optimizer> mine(parameters, {parameters.size()},
                                                         {options(0.1)});
  try {
    mine.set_options(std::nullopt, given->first);
  } catch (const std::runtime_error& e) {
    if (!in_libtorchs_words(e)) throw;
  }
  try {
    mine.set_state(given->second);
  } catch (const std::invalid_argument&) {
    return;
  } catch (const std::runtime_error& e) {  // of the step that it tries with those options
    if (!in_libtorchs_words(e)) throw;
    return;
  }
  const auto kept = mine.state();
  if (kept.size() != given->second.size()) broken();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!same_state(given->second[i], kept[i])) broken();
  }
  it.look_at_all(tensors_in(kept));
  send_on(kept);
  weft::autograd::gradient_map gradients;
  {
    const at::AutoGradMode off(false);
    for (const at::Tensor& p : parameters) gradients.accumulate(p, at::ones(p.sizes()));
  }
  mine.step(gradients, 0.5);
}

template <class Options>
void give_options(given_bytes& in) {
  const auto bytes = in.rest();
  weft::message_extensions record;
  weft::reader r(bytes, record);
  std::optional<Options> it;
  try {
    it.emplace(weft::decode<Options>(r));
    r.finish();
  } catch (const rpc_error&) {
    return;
  }
  weft::bytes again;
  weft::writer w(again, record);
  weft::encode(w, *it);
  if (!std::ranges::equal(again.view(), bytes)) broken();
}

/// What looks like a module to those who load one.
struct module_like {
  struct entry {
    std::string name;
    at::Tensor tensor;
    [[nodiscard]] const std::string& key() const { return name; }
    [[nodiscard]] const at::Tensor& value() const { return tensor; }
  };
  std::vector<entry> parameters_ = {{"w", at::zeros({2, 3})}, {"b", at::zeros({3})}};
  std::vector<entry> buffers_ = {{"n", at::zeros({}, at::kLong)}};
  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    return {parameters_[0].tensor, parameters_[1].tensor};
  }
  [[nodiscard]] const std::vector<entry>& named_parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<entry>& named_buffers() const { return buffers_; }
};
void load_module(given_bytes& in, way how) {
  arrived it(in, how);
  weft::optim::module_state given;
  try {
    weft::reader r = it.message().payload();
    given = weft::decode<weft::optim::module_state>(r);
    r.finish();
  } catch (const rpc_error&) {
    return;
  }
  it.look_at_all(tensors_in(given));
  module_like mine;
  try {
    weft::optim::detail::load_state(mine, given);
  } catch (const std::invalid_argument&) {
    return;
  }
  const auto now = weft::optim::detail::state_of(mine);
  if (now.size() != given.size()) broken();
  for (const auto& [name, tensor] : now) {
    if (!same_bits(given.at(name).detach().to(tensor.scalar_type()), tensor)) broken();
  }
}

// ── references ──

/// What a value becomes on its way, and what its codecs hand over beside its bytes.
struct handed_over {
  template <class T>
  explicit handed_over(const T& value) {
    weft::message m;
    weft::encode(m.payload(), value);
    const auto put_aside = m.record().get<weft::tensor_table>().tensors();
    tensors.assign(put_aside.begin(), put_aside.end());
    references = m.record().get<weft::rref_handover>().references;
    sent = std::move(m).finish({});
  }
  std::vector<at::Tensor> tensors;
  std::vector<weft::intrusive_ptr<weft::detail::reference>> references;
  weft::frame sent;
};

template <class T>
void refer_to(given_bytes& in, way how) {
  arrived it(in, how);
  refer_to_nobody(it.message().record());
  std::optional<T> value;
  std::size_t read = 0;
  try {
    weft::reader r = it.message().payload();
    value.emplace(weft::decode<T>(r));
    read = r.position();
    r.finish();
  } catch (const rpc_error&) {
    return;
  }
  const handed_over first(*value);
  it.look_at_all(first.tensors);
  auto copy = weft_test::copy_of(first.sent);
  if (!copy) broken();
  arrived again(std::move(*copy));
  auto& handover = again.message().record().get<weft::rref_handover>();
  handover.here = it.message().record().get<weft::rref_handover>().here;
  handover.references = first.references;
  weft::reader r = again.message().payload();
  const T same = weft::decode<T>(r);
  if (r.position() != read) broken();
  r.finish();
  const handed_over second(same);
  again.look_at_all(second.tensors);
  if (!std::ranges::equal(second.sent.payload(), first.sent.payload())) broken();
  if (!std::ranges::equal(second.tensors, first.tensors, same_bits)) broken();
  if (second.references != first.references) broken();
}
void refer(given_bytes& in, way how) {
  using weft::rref;
  switch (in.one() % 8) {
  case 0:
    return refer_to<std::vector<rref<at::Tensor>>>(in, how);
  case 1:
    return refer_to<weft::callback<at::Tensor(at::Tensor)>>(in, how);
  case 2:
    return refer_to<weft::sharded<at::Tensor>>(in, how);
  case 3:
    return refer_to<weft::detail::given_argument<at::Tensor>>(in, how);
  case 4:
    return refer_to<weft::detail::given_argument<std::vector<at::Tensor>>>(in, how);
  case 5:
    return refer_to<weft::optim::distributed<Adam>>(in, how);
  case 6:
    return refer_to<
        std::pair<std::vector<rref<at::Tensor>>, weft::optim::optimizer_traits<SGD>::options>>(in,
                                                                                               how);
  default:
    return refer_to<std::map<std::string, std::pair<at::Tensor, std::optional<rref<at::Tensor>>>>>(
        in, how);
  }
}

// ── a whole worker ──

at::Tensor bounded(at::Tensor x) {
  if (x.defined() && x.numel() > most_elements) throw std::invalid_argument("too large to compute");
  return x;
}
at::Tensor doubled(at::Tensor x) { return bounded(std::move(x)) * 2; }
at::Tensor product(at::Tensor x, at::Tensor y) {
  if (x.sizes() != y.sizes()) throw std::invalid_argument("of other sizes");
  return bounded(std::move(x)) * bounded(std::move(y));
}
std::vector<at::Tensor> values_of(std::map<std::string, at::Tensor> all) {
  std::vector<at::Tensor> out;
  for (auto& [name, t] : all) out.push_back(std::move(t));
  return out;
}
at::Tensor left_here(at::Tensor x) { return bounded(std::move(x)).detach().clone(); }
at::Tensor with_mine(at::Tensor& mine, at::Tensor x) {
  return product(bounded(mine), std::move(x));
}
/// Asks who asked.
asio::awaitable<at::Tensor> asks_back(weft::worker& me, at::Tensor x) {
  const at::Tensor y = co_await me.peer(1).call<&doubled>(doubled(x), weft::within(10ms));
  co_return doubled(y);
}
module_like make_module() { return {}; }

const std::vector<known>& functions() {
  namespace o = weft::optim::detail;
  static const std::vector<known> all = {one<&doubled>(),
                                         one<&product>(),
                                         one<&values_of>(),
                                         one<&left_here>(),
                                         one<&with_mine>(),
                                         one<&asks_back>(),
                                         one<&make_module>(),
                                         one<&o::load_state<module_like>>(),
                                         one<&o::state_of<module_like>>(),
                                         one<&o::parameters_of<module_like>>(),
                                         one<o::make_function<SGD>>(),
                                         one<o::step_function<SGD>>(),
                                         one<o::step_in_turn_function<SGD>>(),
                                         one<o::settled_function<SGD>>(),
                                         one<o::gradient_norm_function<SGD>>(),
                                         one<o::set_options_function<SGD>>(),
                                         one<o::state_function<SGD>>(),
                                         one<o::set_state_function<SGD>>()};
  return all;
}

/// {flags 1, target's serial 1?, creation's serial and sequence 1?, count 1, transfers 2 each}
void add_references(given_bytes& in, weft::message& m) {
  namespace p = weft::rref_protocol;
  weft::bytes section;
  const std::uint8_t flags = in.one();
  std::optional<weft::rref_id> target;
  std::optional<p::creation> create;
  if ((flags & 1) != 0) target = weft::rref_id{0, flags >> 7 & 1u, in.one()};
  if ((flags & 2) != 0) {
    const std::uint8_t serial = in.one();
    create = p::creation{{0, 1, serial}, serial};
  }
  const std::uint32_t count = in.one() % 4;
  p::append_head(section, target, static_cast<std::uint8_t>(flags >> 4 & 1), create, count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint8_t what = in.one();
    p::append_transfer(section, {{what & 1u, what >> 1 & 1u, what >> 2 & 15u}, in.one()});
  }
  m.section(weft::section_kind::rref, section.view());
}
/// {context's creator and serial 1, message 1, joined 1}
weft::autograd::context_id context_of(std::uint8_t b) {
  return weft::autograd::make_context_id(b & 1u, b >> 1 & 7u);
}
void add_context(given_bytes& in, weft::message& m) {
  weft::bytes section;
  section.number(context_of(in.one()));
  section.number(std::uint64_t{in.one()});
  const std::uint8_t joined = in.one();
  section.number(static_cast<std::uint8_t>(joined >> 5 & 1));  // its mode
  section.number(std::uint32_t{joined % 4u});
  for (std::uint32_t i = 0; i < joined % 4u; ++i) section.number(joined / 4u % 3);
  m.section(weft::section_kind::autograd, section.view());
}
/// {kind 1, context 1, initiator 1, number 1, ...}
std::vector<std::byte> control_of(given_bytes& in) {
  using namespace weft::autograd;
  const std::uint8_t kind = in.one();
  control out;
  out.pass.context = context_of(in.one());
  out.pass.initiator = in.one() % 3u;
  out.pass.number = in.one();
  const auto ranks = [&] {
    std::vector<worker_rank> all(in.one() % 3u);
    for (worker_rank& r : all) r = in.one() % 3u;
    return all;
  };
  const auto settings = [](unsigned bits) {
    return pass_settings(static_cast<graph_retention>(bits & 1),
                         static_cast<gradient_graph>(bits >> 1 & 1),
                         static_cast<leaf_gradients>(bits >> 2 & 1));
  };
  switch (kind % 12) {
  case 0: {
    need_message m;
    const std::uint8_t how = in.one();
    m.sequence = how & 3u;
    m.settings = settings(how >> 2 & 1 | how >> 5 & 6);
    m.reply = static_cast<need_reply>(how >> 3 & 1);
    for (unsigned i = how >> 4 & 3; i > 0; --i) m.messages.push_back(in.one());
    out.body = std::move(m);
    break;
  }
  case 1: {
    ack_message m;
    m.sequence = in.one();
    m.needs = in.one();
    m.workers = ranks();
    m.waiting = ranks();
    out.body = std::move(m);
    break;
  }
  case 2:
    out.body = go_message{};
    break;
  case 3: {
    grad_message m;
    m.message = in.one();
    m.slots = in.one() % 9u;
    m.present.resize((m.slots + 7) / 8);
    const std::uint8_t bits = in.one();
    for (std::uint32_t i = 0; i < m.slots; ++i) {
      if ((bits >> i % 8 & 1) != 0) m.set(i);
    }
    if (const std::uint8_t opens = in.one(); (opens & 1) != 0) {
      m.opens = pass_opening{settings(opens >> 1), opens >> 4u & 3u};
    }
    out.body = std::move(m);
    break;
  }
  case 4:
    out.body = done_message{ranks()};
    break;
  case 5:
    out.body =
        abort_message{std::uint32_t{in.one()} % 3u, static_cast<abort_reason>(in.one() % 5), "no"};
    break;
  case 6:
    out.body = end_message{{in.one(), in.one()}};
    break;
  case 7:
    out.body = which_message{};
    break;
  case 8:
    out.body = waits_message{"for nothing"};
    break;
  default: {  // what only the service knows, or nobody
    const auto raw = in.take(in.one());
    std::vector<std::byte> all = {static_cast<std::byte>(kind % 12 + 7)};  // 16 to 18: theirs
    weft::bytes id;
    id.number(out.pass.context);
    all.insert(all.end(), id.data(), id.data() + id.size());
    all.insert(all.end(), raw.begin(), raw.end());
    return all;
  }
  }
  return encode(out);
}

/// {kind 1, sections 1, call 1, which function 1, flags 1}, then tensors and sections as they are
/// wanted, then the payload with a length of one byte.
std::vector<std::byte> next_frame(given_bytes& in) {
  constexpr std::array<weft::frame_kind, 8> kinds = {
      weft::frame_kind::request, weft::frame_kind::request,  weft::frame_kind::reply,
      weft::frame_kind::failure, weft::frame_kind::autograd, weft::frame_kind::autograd,
      weft::frame_kind::rref,    weft::frame_kind::cancel};
  weft::frame_header h;
  h.kind = kinds[in.one() % kinds.size()];
  const std::uint8_t sections = in.one();
  const std::uint8_t call = in.one();
  const known& f = functions()[in.one() % functions().size()];
  const std::uint8_t flags = in.one();
  h.call = std::uint64_t{call & 15u} << 32 | call >> 4;
  h.function = h.kind == weft::frame_kind::request ? f.id : 0;
  h.signature = h.kind == weft::frame_kind::request ? f.signature : 0;
  h.flags = flags & weft::flag_no_reply;
  h.deadline = flags < 128 ? 0 : 1000u * flags;
  weft::message m;
  lent_memory lent;
  if ((sections & 1) != 0) {
    described_tensors tensors = read_tensors(in, sent_from::elsewhere, lent);
    for (weft::blob& b : tensors.buffers) static_cast<void>(m.add_blob(std::move(b)));
    m.section(weft::section_kind::tensors, tensors.section.view());
  }
  if ((sections & 2) != 0) add_references(in, m);
  if ((sections & 4) != 0) add_context(in, m);
  if (h.kind == weft::frame_kind::autograd && (sections & 8) == 0) {
    const auto what = control_of(in);
    m.payload().count(what.size());
    m.payload().raw(what.data(), what.size());
  } else {
    const auto raw = in.take(in.one());
    m.payload().raw(raw.data(), raw.size());
  }
  return weft::testing::wire(std::move(m).finish(h));
}

void talk(given_bytes& in) {
  scene s(weft::engine::services<weft::rref_service, weft::autograd_service>());
  for (int i = 0; i < 16 && !in.at_end(); ++i) {
    s.say(next_frame(in));
    if (i % 4 == 3) s.run(1ms);
  }
  s.run(100ms);
  s.hear();
  s.run(100ms);
  // It may be left behind, and the run goes on.
  if (!s.victim().alive() || s.victim().ended()) broken();
}

}  // namespace hostile_tensors

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::cerr.setstate(std::ios::badbit);  // what the worker says of its peer
  return 0;
}
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hostile_tensors;
  if (size < 2) return 0;
  // Memory of its own, so that reading beyond it is seen.
  const std::vector<std::byte> mine(reinterpret_cast<const std::byte*>(data) + 2,
                                    reinterpret_cast<const std::byte*>(data) + size);
  given_bytes in{std::span<const std::byte>(mine)};
  const way how = way_of(data[1]);
  switch (data[0] % 16) {
  case 0:
    decode_as<std::vector<at::Tensor>>(in, how);
    break;
  case 1:
    decode_as<everything>(in, how);
    break;
  case 2:
    decode_as<std::map<std::string, std::optional<std::vector<at::Tensor>>>>(in, how);
    break;
  case 3:
    pass_on(in, how);
    break;
  case 4:
    unseal(in, how);
    break;
  case 5:
    drop(in, how);
    break;
  case 6:
    give_state<Adam>(in, how);
    break;
  case 7:
    give_state<SGD>(in, how);
    break;
  case 8:
    give_state<torch::optim::RMSprop>(in, how);
    break;
  case 9:
    if (data[1] % 2 == 0) {
      give_options<torch::optim::AdamWOptions>(in);
    } else {
      give_options<torch::optim::AdagradOptions>(in);
    }
    break;
  case 10:
    load_module(in, how);
    break;
  case 11:
    refer(in, how);
    break;
  case 12:
    decode_as<std::tuple<c10::Device, c10::ScalarType, c10::Scalar, at::Tensor>>(in, how);
    break;
  default:
    talk(in);
  }
  return 0;
}
