// Addresses, ports and memory of the servers that configuration files describe, and their etcd.
#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/byte_text.h"
#include "core/base/host_memory.h"
#include "core/base/text.h"
#include "core/planner/io/fields.h"
#include "server/etcd/etcd_address.h"
#include "server/etcd/etcd_layout.h"
#include "tools/embla/doctor_machine.h"

namespace embla::cli {
namespace {

namespace fs = std::filesystem;

struct Listener {
  std::string where;  // "FILE: admin-listen"
  HostPort address;
};

bool IsAny(std::string_view host) { return host == "0.0.0.0" || host == "::" || host.empty(); }

std::vector<Listener> ListenersOf(const ServerConfig& server) {
  std::vector<Listener> listeners;
  for (const char* const flag : {"listen", "admin-listen", "metrics-listen"}) {
    const auto address = SplitAddress(server.Value(flag));
    if (!address.has_value() || address->port == "0") continue;
    listeners.push_back({absl::StrCat(server.path, ": ", flag), *address});
  }
  return listeners;
}

bool Collide(const HostPort& a, const HostPort& b) {
  return a.port == b.port && (a.host == b.host || IsAny(a.host) || IsAny(b.host));
}

// Whether a socket of /proc/net/tcp, as "0100007F:1F90", keeps others from listening on `host`. A
// host that is no number may be any.
bool IsInTheWay(std::string_view socket, const std::string& host) {
  const std::string_view its = socket.substr(0, socket.find(':'));
  in_addr own = {};
  if (IsAny(host) || ::inet_pton(AF_INET, host.c_str(), &own) != 1) return true;
  return its.find_first_not_of('0') == std::string_view::npos ||
         its == absl::StrFormat("%08X", own.s_addr);
}

// The sockets that listen on the address, by their inodes: lines of /proc/net/tcp such as
// "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711".
std::vector<std::string> SocketsOn(const std::string& root, const std::string& host, int port) {
  const std::string wanted = absl::StrFormat(":%04X", port);
  std::vector<std::string> inodes;
  for (const char* const file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(root + file);
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      std::vector<std::string> word(10);
      for (std::string& each : word) words >> each;
      const bool listens = word[1].ends_with(wanted) && word[3] == "0A";
      if (listens && IsInTheWay(word[1], host)) inodes.push_back(word[9]);
    }
  }
  return inodes;
}

// The process that has the socket, as "nginx (process 123)"; empty: this user may not know.
std::string HolderOf(const std::string& root, const std::string& inode) {
  const std::string link = absl::StrCat("socket:[", inode, "]");
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator(root + "/proc", ignored)) {
    const std::string number = process.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const auto& open : fs::directory_iterator(process.path() / "fd", ignored)) {
      if (fs::read_symlink(open.path(), ignored) != link) continue;
      std::ifstream file(process.path() / "comm");
      std::string name;
      std::getline(file, name);
      return absl::StrCat(name, " (process ", number, ")");
    }
  }
  return "";
}

void CheckPorts(const ThisMachine& machine, const std::vector<Listener>& listeners,
                Report& report) {
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    const auto& [where, address] = listeners[i];
    for (std::size_t j = i + 1; j < listeners.size(); ++j) {
      if (!Collide(address, listeners[j].address)) continue;
      report.Add("port-twice", where,
                 absl::StrCat("port ", address.port, " is also that of ", listeners[j].where));
    }
    int port = 0;
    std::from_chars(address.port.data(), address.port.data() + address.port.size(), port);
    for (const std::string& inode : SocketsOn(machine.root, address.host, port)) {
      const std::string holder = HolderOf(machine.root, inode);
      if (holder.empty() || holder.starts_with("embla-")) continue;
      report.Add("port-taken", where, absl::StrCat(holder, " listens on port ", port));
    }
  }
}

void CheckReach(const ServerConfig& server, const std::vector<Listener>& listeners,
                Report& report) {
  const bool is_allowed = server.has_tls() || server.Value("insecure") == "true";
  for (const Listener& listener : listeners) {
    if (is_allowed || IsLoopback(listener.address.host)) continue;
    report.Add("listen-refused", listener.where,
               absl::StrCat("other machines reach ", listener.address.host,
                            ", and there is neither tls-cert nor insecure"));
  }
}

void CheckNames(const ThisMachine& machine, const ServerConfig& server,
                const std::string& admin_address, Report& report) {
  std::vector<std::string> addresses;
  for (const char* const flag : {"advertise", "admin-advertise", "coordinator"}) {
    for (std::string& one : SplitList(server.Value(flag))) addresses.push_back(std::move(one));
  }
  for (const std::string& one : addresses) {
    const auto address = SplitAddress(one);
    if (!address.has_value() || machine.resolves(address->host)) continue;
    report.Add("name-unresolved", server.path,
               absl::StrCat(address->host, " of ", one, " is not known here"));
  }
  const std::vector<std::string> admins = SplitList(admin_address);
  for (const std::string& coordinator : SplitList(server.Value("coordinator"))) {
    if (std::ranges::find(admins, coordinator) == admins.end()) continue;
    report.Add("port-wrong", server.path,
               absl::StrCat("coordinator = ", coordinator, ", which is the --admin address"));
  }
}

// The CPU devices of "gpu:0,cpu:2".
std::int64_t CpuDevices(const std::string& devices) {
  std::int64_t count = 0;
  for (const std::string& item : SplitList(devices)) {
    std::int64_t number = 0;
    if (!item.starts_with("cpu:")) continue;
    std::from_chars(item.data() + 4, item.data() + item.size(), number);
    count += number;
  }
  return count;
}

void CheckPromises(const ThisMachine& machine, const ServerConfig& server, Report& report) {
  const auto each = planner::BytesFromText(server.Value("memory-per-device", "0"));
  if (server.is_coordinator || !each.ok()) return;
  const std::int64_t devices = CpuDevices(server.Value("devices", "cpu:1"));
  const std::int64_t there = FindHostMemory(machine.root).bytes;
  if (devices == 0 || *each <= there / devices) return;
  report.Add("memory-beyond-machine", server.path,
             absl::StrCat(devices, " x ", FormatBytes(*each), " of ", FormatBytes(there)));
}

}  // namespace

void CheckServers(const ThisMachine& machine, const std::vector<ServerConfig>& servers,
                  const std::string& admin_address, Report& report) {
  std::vector<Listener> all;
  for (const ServerConfig& server : servers) {
    const std::vector<Listener> listeners = ListenersOf(server);
    all.insert(all.end(), listeners.begin(), listeners.end());
    CheckReach(server, listeners, report);
    CheckNames(machine, server, admin_address, report);
    CheckPromises(machine, server, report);
  }
  CheckPorts(machine, all, report);
}

void CheckEtcd(const ThisMachine& machine, const ServerConfig& coordinator, Report& report) {
  const auto address = ParseEtcdAddress(coordinator.State());
  if (!IsEtcdAddress(coordinator.State())) return;
  if (!address.ok()) {
    report.Add("etcd-unreachable", coordinator.path, Message(address.status()));
    return;
  }
  if (address->members.size() == 1) {
    report.Add("etcd-one-address", coordinator.path, address->members.front());
  }
  std::vector<std::pair<std::string, std::string>> silent;  // Member and why.
  std::size_t candidates = 0;
  for (const std::string& member : address->members) {
    const auto count = machine.count_in_etcd({.members = {member},
                                              .ca_file = coordinator.Value("etcd-ca"),
                                              .cert_file = coordinator.Value("etcd-cert"),
                                              .key_file = coordinator.Value("etcd-key")},
                                             EtcdLayout(address->prefix).Election());
    if (!count.ok()) {
      silent.emplace_back(member, Message(count.status()));
    } else {
      candidates = std::max(candidates, *count);
    }
  }
  const bool all_silent = silent.size() == address->members.size();
  for (const auto& [member, why] : silent) {
    report.Add(all_silent ? "etcd-unreachable" : "etcd-member", member, why);
  }
  if (candidates == 1) {
    report.Add("coordinator-alone", coordinator.State(), "nobody stands by for the leader");
  }
}

}  // namespace embla::cli
