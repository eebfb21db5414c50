// SPDX-License-Identifier: BSL-1.0
// Several hosts on this machine, for tests: network namespaces, each with addresses, a loopback
// interface, an /etc/hosts and a DNS server of its own, and a router between them.
//
//   a  10.231.1.2  fd77:1::2 ──┐
//   b  10.231.2.2  fd77:2::2 ──┼── the router, which drops what is cut without a word
//   c  10.231.3.2  fd77:3::2 ──┘
//
//   if (hosts::skipped()) return;          // prints "skipped: <why>" where there can be none
//   hosts net({"a", "b", "c"});            // before the children: they end first
//   child at_a(net.inside("a", {party, "greet"}), {{"MASTER_ADDR", net.address("a")}});
//   net.cut("a", "b");                     // a and c, b and c still reach each other
//   net.mend("a", "b");
//
// Names are of one test process, and go with this object; those of a process that was killed are
// removed by the next. They need root and iproute2. Throws std::runtime_error with what `ip` said.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::testing {

class hosts {
 public:
  /// An address from which nothing ever comes back, not even that nobody is there.
  static constexpr const char* nobody = "10.231.250.2";

  /// Whether hosts cannot be made here; says so in one line, which `./dev test` counts.
  static bool skipped() {
    static const std::string why = obstacle();
    if (why.empty()) return false;
    std::printf("skipped: %s\n", why.c_str());
    std::fflush(stdout);
    return true;
  }

  /// At most 200, whose names are words of letters. All of them reach each other.
  explicit hosts(std::vector<std::string> names) : names_(std::move(names)) {
    remove_leftovers();
    static int made = 0;
    prefix_ = "weft-" + std::to_string(::getpid()) + "-" + std::to_string(made++) + "-";
    try {
      make();
    } catch (...) {
      remove();
      throw;
    }
  }
  hosts(const hosts&) = delete;
  hosts& operator=(const hosts&) = delete;
  ~hosts() { remove(); }

  /// The addresses of its interface eth0, beside which it has lo.
  [[nodiscard]] std::string address(const std::string& name) const {
    return "10.231." + number(name) + ".2";
  }
  [[nodiscard]] std::string address6(const std::string& name) const {
    return "fd77:" + number(name) + "::2";
  }

  /// That command, to be run on that host.
  [[nodiscard]] std::vector<std::string> inside(const std::string& name,
                                                const std::vector<std::string>& command) const {
    // `ip netns exec` gives it mounts of its own, and executes it in its own place.
    const std::string mounts =
        "for f in hosts resolv.conf nsswitch.conf; do "
        "test ! -e /etc/$f || mount --bind \"$0/$f\" /etc/$f || exit 125; done; exec \"$@\"";
    std::vector<std::string> out{"ip", "netns", "exec", space(name),
                                 "sh", "-c",    mounts, (files_ / name).string()};
    out.insert(out.end(), command.begin(), command.end());
    return out;
  }

  /// Nothing comes from one to the other any more, either way, by IPv4 and IPv6.
  void cut(const std::string& a, const std::string& b) { path("add", a, b); }
  void mend(const std::string& a, const std::string& b) { path("del", a, b); }
  /// The same, between that host and every other one.
  void cut(const std::string& a) {
    for (const std::string& b : names_) {
      if (b != a) cut(a, b);
    }
  }
  void mend(const std::string& a) {
    for (const std::string& b : names_) {
      if (b != a) mend(a, b);
    }
  }
  /// Its interface goes down, which programs there see at once ("Network is unreachable"); or up.
  void unplug(const std::string& name) { ip(name, "link set eth0 down"); }
  void plug(const std::string& name) { bring_up(name); }

  /// What is in its files /etc/hosts (at first "127.0.0.1 localhost") and /etc/resolv.conf (at
  /// first a server that refuses to answer), also for what runs there already.
  void etc_hosts(const std::string& name, const std::string& text) { write(name, "hosts", text); }
  void etc_resolv(const std::string& name, const std::string& text) {
    write(name, "resolv.conf", text);
  }

  /// `ip <arguments>` there: further addresses, say. "router" is the router.
  void ip(const std::string& name, const std::string& arguments) {
    run("ip -n " + space(name) + " " + arguments);
  }

 private:
  static constexpr const char* router = "router";

  [[nodiscard]] std::string number(const std::string& name) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return std::to_string(i + 1);
    }
    throw std::runtime_error("hosts: there is no '" + name + "'");
  }
  [[nodiscard]] std::string space(const std::string& name) const { return prefix_ + name; }

  void make() {
    std::string folder = (std::filesystem::temp_directory_path() / "weft-hosts-XXXXXX").string();
    if (!::mkdtemp(folder.data())) throw std::runtime_error("hosts: no folder " + folder);
    files_ = folder;
    run("ip netns add " + space(router));
    run("ip netns exec " + space(router) +
        " sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward && "
        "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'");
    ip(router, "route add blackhole 10.231.250.0/24");
    for (const std::string& name : names_) {
      const std::string n = number(name);
      run("ip netns add " + space(name));
      ip(name, "link set lo up");
      ip(router, "link add e" + n + " type veth peer name eth0 netns " + space(name));
      ip(router, "addr add 10.231." + n + ".1/24 dev e" + n);
      ip(router, "addr add fd77:" + n + "::1/64 dev e" + n + " nodad");
      ip(router, "link set e" + n + " up");
      bring_up(name);
      std::filesystem::create_directory(files_ / name);
      etc_hosts(name, "127.0.0.1 localhost\n");
      etc_resolv(name, "nameserver 127.0.0.1\n");
      write(name, "nsswitch.conf", "hosts: files dns\n");
    }
  }
  /// Whatever it has kept while it was down.
  void bring_up(const std::string& name) {
    ip(name, "link set eth0 up");
    ip(name, "addr replace " + address(name) + "/24 dev eth0");
    ip(name, "addr replace " + address6(name) + "/64 dev eth0 nodad");
    ip(name, "route replace default via 10.231." + number(name) + ".1");
    ip(name, "route replace default via fd77:" + number(name) + "::1");
  }
  void path(const std::string& what, const std::string& a, const std::string& b) {
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      ip(router, "rule " + what + " from " + address(from) + " to " + address(to) + " blackhole");
      ip(router,
         "-6 rule " + what + " from " + address6(from) + " to " + address6(to) + " blackhole");
    }
  }
  void write(const std::string& name, const char* file, const std::string& text) const {
    std::ofstream out(files_ / name / file);  // in place: it may be mounted
    out << text;
    if (!out.flush()) throw std::runtime_error(std::string("hosts: cannot write ") + file);
  }

  void remove() noexcept {
    try {
      for (const std::string& name : spaces()) {
        if (name.starts_with(prefix_)) run("ip netns del " + name);
      }
      if (!files_.empty()) std::filesystem::remove_all(files_);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
  }
  static void remove_leftovers() {
    for (const std::string& name : spaces()) {
      if (!name.starts_with("weft-")) continue;
      const pid_t of = std::atoi(name.c_str() + 5);
      if (of > 0 && ::kill(of, 0) != 0) run("ip netns del " + name);
    }
  }
  [[nodiscard]] static std::vector<std::string> spaces() {
    std::vector<std::string> out;
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator("/run/netns", ec)) {
      out.push_back(entry.path().filename().string());
    }
    return out;
  }

  [[nodiscard]] static std::string obstacle() {
    if (::geteuid() != 0) return "only root can make hosts of network namespaces";
    if (std::system("command -v ip > /dev/null") != 0) return "there is no iproute2 (`ip`)";
    try {
      const hosts two({"a", "b"});
    } catch (const std::exception& e) {
      return std::string("no network namespaces here: ") + e.what();
    }
    return {};
  }
  static void run(const std::string& line) {
    std::FILE* const pipe = ::popen(("timeout 60 " + line + " 2>&1").c_str(), "re");
    if (!pipe) throw std::runtime_error("hosts: cannot run " + line);
    std::string said;
    // bounded: the pipe ends with the command
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) {
      said += c == '\n' ? ' ' : static_cast<char>(c);
    }
    if (::pclose(pipe) != 0) throw std::runtime_error("hosts: " + line + ": " + said);
  }

  std::vector<std::string> names_;
  std::string prefix_;
  std::filesystem::path files_;
};

}  // namespace weft::testing
