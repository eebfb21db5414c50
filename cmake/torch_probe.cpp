// SPDX-License-Identifier: BSL-1.0
// What weft needs of libtorch, in as few lines as can fail: a TCPStore over a listening socket that
// is handed to it, and AccumulateGrad. CMake compiles, links and runs this with each candidate.
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <exception>
#include <iostream>

#include <arpa/inet.h>
#include <sys/socket.h>

namespace {

int probe() {
  int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 8) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return 1;
  c10d::TCPStoreOptions options;
  options.port = ntohs(address.sin_port);
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = false;
  options.masterListenFd = listener;
  c10d::TCPStore store("127.0.0.1", options);
  store.set("weft", std::vector<uint8_t>{1});
  auto leaf = at::empty({1}).set_requires_grad(true);
  auto node = torch::autograd::impl::grad_accumulator(leaf);
  bool accumulates = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()) != nullptr;
  return accumulates && store.check({"weft"}) ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return probe();
  } catch (const c10::Error& e) {
    std::cout << e.what_without_backtrace() << '\n';
  } catch (const std::exception& e) {
    std::cout << e.what() << '\n';
  }
  return 1;
}
