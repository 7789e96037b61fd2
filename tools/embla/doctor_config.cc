#include "tools/embla/doctor_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/nearest_name.h"
#include "core/base/text.h"

namespace embla::cli {
namespace {

constexpr std::string_view kOfBoth =
    "listen metrics-listen advertise tls-cert tls-key tls-ca tls-revoked tokens insecure "
    "connection-age "
    "cluster-key heartbeat-ms stop-grace-ms connections-per-address descriptors-min port-file "
    "log-level log-format";
constexpr std::string_view kOfCoordinators =
    "admin-listen admin-advertise admin-reflection audit-log state-dir state etcd-ca etcd-cert "
    "etcd-key lease-ms "
    "dead-after-ms session-lease-ms";
constexpr std::string_view kOfShards =
    "kept-heap trainer-quotas name accept-loss coordinator await-coordinator devices collectives "
    "memory-per-device gpu-cache gpu-cache-policy threads-per-device data-dir durability "
    "snapshot-after no-data-sockets";

}  // namespace

std::string ServerConfig::Value(std::string_view flag, std::string_view otherwise) const {
  const auto found = flags.find(std::string(flag));
  return found == flags.end() ? std::string(otherwise) : found->second;
}

std::string ServerConfig::State() const { return Value("state", Value("state-dir")); }

std::vector<std::string> FlagsOfServers(bool is_coordinator) {
  const std::string_view own = is_coordinator ? kOfCoordinators : kOfShards;
  std::vector<std::string> flags = absl::StrSplit(ToAbsl(kOfBoth), ' ');
  const std::vector<std::string> more = absl::StrSplit(ToAbsl(own), ' ');
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::optional<ServerConfig> LoadServerConfig(const std::string& path, bool is_coordinator,
                                             const ReadConfig& read, Report& report) {
  auto flags = read(path);
  if (!flags.ok()) {
    report.Add("config-unreadable", path, Message(flags.status()));
    return std::nullopt;
  }
  const std::vector<std::string> known = FlagsOfServers(is_coordinator);
  for (const auto& [flag, value] : *flags) {
    if (std::ranges::find(known, flag) != known.end()) continue;
    const std::string meant = NearestName(flag, known);
    report.Add("config-unknown-flag", path,
               absl::StrCat(is_coordinator ? "embla-coordinator" : "embla-shard", " has no flag ",
                            flag, meant.empty() ? "" : absl::StrCat("; ", meant, " is one")));
  }
  return ServerConfig{path, is_coordinator, *std::move(flags)};
}

std::optional<HostPort> SplitAddress(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (address.starts_with("unix:") || colon == std::string_view::npos) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostPort{std::string(host), std::string(address.substr(colon + 1))};
}

std::vector<std::string> SplitList(std::string_view text) {
  return absl::StrSplit(ToAbsl(text), ',', absl::SkipEmpty());
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace embla::cli
