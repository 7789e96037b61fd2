// Where a cluster's state is kept, as --state says it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace embla {

struct EtcdAddress {
  std::vector<std::string> members;  // host:port
  std::string prefix;                // Begins with a slash, does not end with one.
};

// Whether `state` means etcd, not a directory.
bool IsEtcdAddress(const std::string& state);

// etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX]; the port is 2379 and the prefix /embla unless said
// otherwise. InvalidArgument says what is wrong.
absl::StatusOr<EtcdAddress> ParseEtcdAddress(const std::string& state);

}  // namespace embla
