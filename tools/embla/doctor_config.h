// The configuration files of servers, as `embla doctor` reads them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/embla/doctor_report.h"

namespace embla::cli {

// Flags of a file by name, without dashes in front. Errors: those of files, InvalidArgument.
using ReadConfig =
    std::function<absl::StatusOr<std::map<std::string, std::string>>(const std::string& path)>;

struct ServerConfig {
  std::string path;
  bool is_coordinator = false;
  std::map<std::string, std::string> flags = {};

  // The flag's value, or what it is unless stated.
  std::string Value(std::string_view flag, std::string_view otherwise = "") const;
  // The coordinator's --state, which is also called --state-dir.
  std::string State() const;
  bool has_tls() const { return !Value("tls-cert").empty(); }
};

// The flags that a server takes from its file.
std::vector<std::string> FlagsOfServers(bool is_coordinator);

// Reads the file and looks for flags that the program does not have. Nothing: it cannot be read.
std::optional<ServerConfig> LoadServerConfig(const std::string& path, bool is_coordinator,
                                             const ReadConfig& read, Report& report);

struct HostPort {
  std::string host;  // Without brackets.
  std::string port;
};
// Nothing for unix:/path, and for what is no address.
std::optional<HostPort> SplitAddress(std::string_view address);
std::vector<std::string> SplitList(std::string_view text);  // At commas.
// Whether only this machine reaches the host.
bool IsLoopback(std::string_view host);

}  // namespace embla::cli
