// SPDX-License-Identifier: BSL-1.0
#include "tensorpipe.hpp"

// What PyTorch itself was built with; without these its headers are empty.
#ifndef USE_DISTRIBUTED
#define USE_DISTRIBUTED
#endif
#ifndef USE_RPC
#define USE_RPC
#endif
#ifndef USE_TENSORPIPE
#define USE_TENSORPIPE
#endif

#include "../samples.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/rpc/request_callback.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <stdlib.h>
#include <unistd.h>

namespace bench::tensorpipe {
namespace {

namespace rpc = torch::distributed::rpc;
using message_ptr = c10::intrusive_ptr<rpc::Message>;
using future_ptr = c10::intrusive_ptr<rpc::JitFuture>;

future_ptr pending() { return c10::make_intrusive<rpc::JitFuture>(at::AnyClassType::get()); }

/// Sends the request's payload and tensors back as they came, on the thread that calls.
class echo_callback final : public rpc::RequestCallback {
  future_ptr processMessage(rpc::Message& request, std::vector<c10::Stream>) const override {
    auto reply = c10::make_intrusive<rpc::Message>(std::move(request).movePayload(),
                                                   std::move(request).moveTensors(),
                                                   rpc::MessageType::SCRIPT_RET, request.id());
    auto [value, storages] = rpc::withStorages(std::move(reply));
    auto result = pending();
    result->markCompleted(c10::IValue(std::move(value)), std::move(storages));
    return result;
  }
};

/// A folder for the store, removed by the process that made it.
class store_folder {
 public:
  store_folder() : maker_(getpid()) {
    auto name = (std::filesystem::temp_directory_path() / "weft-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    path_ = name;
  }
  store_folder(const store_folder&) = delete;
  store_folder& operator=(const store_folder&) = delete;
  ~store_folder() {
    std::error_code ignored;
    if (getpid() == maker_) std::filesystem::remove_all(path_, ignored);
  }
  std::string file() const { return (path_ / "store").string(); }

 private:
  std::filesystem::path path_;
  pid_t maker_;
};

constexpr int ends = 2;
constexpr int compute_threads = 16;  // PyTorch's default
constexpr float timeout_s = 60;

std::shared_ptr<rpc::TensorPipeAgent> start_agent(const std::string& file, rpc::worker_id_t rank) {
  at::set_num_threads(1);
  auto store = c10::make_intrusive<c10d::FileStore>(file, ends);
  rpc::TensorPipeRpcBackendOptions options(compute_threads, std::vector<std::string>{"uv"},
                                           std::vector<std::string>{"basic"}, timeout_s, "env://");
  auto agent = std::make_shared<rpc::TensorPipeAgent>(
      std::move(store), "end" + std::to_string(rank), rank, ends, std::move(options),
      std::unordered_map<std::string, rpc::DeviceMap>{}, std::vector<c10::Device>{},
      std::make_unique<echo_callback>());
  rpc::RpcAgent::setCurrentRpcAgent(agent);
  // Reading a message asks the agent for one, although no type in ours needs resolving.
  agent->setTypeResolver(
      std::make_shared<std::function<c10::StrongTypePtr(const c10::QualifiedName&)>>(
          [](const c10::QualifiedName& name) -> c10::StrongTypePtr {
            throw std::runtime_error("unexpected type " + name.qualifiedName());
          }));
  agent->start();
  return agent;
}

/// The two ends: an echo in a process of its own, which dies with this object, and the caller.
class conversation {
 public:
  explicit conversation(placement where)
      : callee_(where, side::callee,
                [this] {
                  const auto agent = start_agent(folder_.file(), 1);
                  for (;;) pause();
                }),
        agent_(start_agent(folder_.file(), 0)),
        to_(agent_->getWorkerInfo("end1")) {}

  future_ptr send(std::vector<char> payload, std::vector<at::Tensor> tensors) {
    return agent_->send(to_,
                        c10::make_intrusive<rpc::Message>(std::move(payload), std::move(tensors),
                                                          rpc::MessageType::SCRIPT_CALL));
  }

 private:
  store_folder folder_;
  child callee_;
  std::shared_ptr<rpc::TensorPipeAgent> agent_;
  rpc::WorkerInfo to_;
};

message_ptr wait_for(const future_ptr& reply) {
  reply->waitAndThrow();
  return reply->constValue().toCustomClass<rpc::Message>();
}

/// Keeps a number of calls under way until told to stop: each completion sends the next.
class flight {
 public:
  flight(conversation& with, std::size_t in_flight) : with_(with), under_way_(in_flight) {}

  figures run() {
    for (std::size_t i = under_way_; i > 0; --i) send();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(300), [this] { return failed_; });
    count_.start();
    changed_.wait_for(lock, std::chrono::milliseconds(1000), [this] { return failed_; });
    auto result = count_.result();
    stopping_ = true;
    changed_.wait(lock, [this] { return under_way_ == 0; });
    if (failed_) throw std::runtime_error("a call failed: " + failure_);
    return result;
  }

 private:
  void send() {
    with_.send(std::vector<char>(64, 'x'), {})->addCallback([this](rpc::JitFuture& reply) {
      if (ended(reply)) send();
    });
  }
  /// Whether another call is to follow.
  bool ended(rpc::JitFuture& reply) {
    const std::lock_guard lock(mutex_);
    count_.count();
    if (reply.hasError()) {
      failed_ = true;
      failure_ = reply.tryRetrieveErrorMessage();
    }
    if (!stopping_ && !failed_) return true;
    --under_way_;
    changed_.notify_all();
    return false;
  }

  conversation& with_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_;
  bool stopping_ = false;
  bool failed_ = false;
  std::string failure_;
  throughput count_;
};

}  // namespace

figures echo_small(placement where) {
  conversation with(where);
  pace times(std::chrono::milliseconds(800));
  while (times.more()) {
    times.begin();
    const auto reply = wait_for(with.send(std::vector<char>(64, 'x'), {}));
    times.end();
    if (reply->payload().size() != 64) throw std::runtime_error("the echo has another size");
  }
  return times.latency();
}

figures echo_many(std::size_t in_flight, placement where) {
  conversation with(where);
  return flight(with, in_flight).run();
}

figures echo_tensor(std::size_t bytes, placement where) {
  conversation with(where);
  const auto tensor = at::ones({static_cast<std::int64_t>(bytes / sizeof(float))}, at::kFloat);
  pace times(std::chrono::milliseconds(bytes > (1U << 22U) ? 1500 : 500));
  while (times.more()) {
    times.begin();
    const auto reply = wait_for(with.send({}, {tensor}));
    times.end();
    if (reply->tensors().at(0).nbytes() != bytes) {
      throw std::runtime_error("the echo has another size");
    }
  }
  return times.latency();
}

}  // namespace bench::tensorpipe
