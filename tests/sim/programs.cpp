// SPDX-License-Identifier: BSL-1.0
// The programs that need no libtorch.
#include <weft/engine/services/rref_service.hpp>

#include <chrono>
#include <sim/habits.hpp>
#include <sim/play.hpp>
#include <sim/references.hpp>
#include <sim/verbs.hpp>

namespace weft::testing {

namespace {

class script_of_calls final : public script {
 public:
  explicit script_of_calls(witness& sees) : sees_(sees) {}
  asio::awaitable<void> main(worker& me) override { return some_program(me, draw_steps(12)); }
  counts count() const override { return {{"calls", sees_.calls.size()}}; }

 private:
  witness& sees_;
};

/// Of a world that is gone.
void check_objects(object_witness& of) {
  for (std::size_t i = 0; i < of.objects.size(); ++i) {
    const seen_object& o = of.objects[i];
    if (o.made != o.dead) of.calls.complain("object " + std::to_string(i) + " never died");
  }
}

class script_of_references final : public script {
 public:
  explicit script_of_references(witness& sees) : objects_(sees) {}
  asio::awaitable<void> main(worker& me) override { return some_references(me, draw_steps(14)); }
  void let_go() override { objects_.stored.clear(); }
  void check() override { check_objects(objects_); }
  counts count() const override { return {{"objects", objects_.objects.size()}}; }

 private:
  object_witness objects_;
};

class script_of_habits final : public script {
 public:
  explicit script_of_habits(witness& sees) : sees_(sees), objects_(sees) {}
  asio::awaitable<void> main(worker& me) override {
    return some_habits(me, draw_steps(14), me.settings().bounds.link_tensor_bytes == little_budget);
  }
  void let_go() override { objects_.stored.clear(); }
  void check() override { check_objects(objects_); }
  counts count() const override { return {{"calls", sees_.calls.size()}}; }

  static void adjust(std::uint64_t seed, sim::settings& s) {
    using namespace std::chrono_literals;
    if (seed % 8 == 6) {
      s.wires.jitter = 120ms;  // some handshakes are too late
      s.wires.buffer_bytes = 64u << 20;
      s.worker.call_deadline = 20s;
      // All those of one pair, one after another, are not.
      s.worker.rendezvous_deadline = s.worker.shutdown_deadline = 20s;
    }
    if (seed % 8 == 7) s.worker.bounds.link_tensor_bytes = little_budget;
  }

 private:
  /// What all of the program does is too much for it.
  static constexpr std::uint64_t little_budget = 40'000;
  witness& sees_;
  object_witness objects_;
};

class script_of_verbs final : public script {
 public:
  explicit script_of_verbs(witness& sees) : sees_(sees) {}
  asio::awaitable<void> main(worker& me) override { return some_verbs(me, draw_steps(12)); }
  counts count() const override { return {{"calls", sees_.calls.size()}}; }

 private:
  witness& sees_;
};

}  // namespace

const program program::calls{"calls", [] { return engine::services<rref_service>(); },
                             [](witness& sees) -> std::unique_ptr<script> {
                               return std::make_unique<script_of_calls>(sees);
                             }};
const program program::references{"references", [] { return engine::services<rref_service>(); },
                                  [](witness& sees) -> std::unique_ptr<script> {
                                    return std::make_unique<script_of_references>(sees);
                                  }};
const program program::habits{"habits", [] { return engine::services<rref_service>(); },
                              [](witness& sees) -> std::unique_ptr<script> {
                                return std::make_unique<script_of_habits>(sees);
                              },
                              &script_of_habits::adjust};
const program program::verbs{"verbs", [] { return engine::services<rref_service>(); },
                             [](witness& sees) -> std::unique_ptr<script> {
                               return std::make_unique<script_of_verbs>(sees);
                             }};

}  // namespace weft::testing
