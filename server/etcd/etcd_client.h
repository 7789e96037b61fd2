// EtcdKv over etcd's gRPC API (proto/embla/etcd/v3.proto): one channel per member, one member asked
// at a time, the next one after a failure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/etcd/etcd_kv.h"

namespace embla {

struct EtcdClientOptions {
  std::vector<std::string> members;  // host:port
  // Files in PEM. With a CA the connections are TLS; with the other two etcd is shown a
  // certificate, which also is the user where etcd has --client-cert-auth. Empty: plaintext.
  std::string ca_file = {};
  std::string cert_file = {};
  std::string key_file = {};
};

// Connects with the first call. Errors: InvalidArgument (no member; a certificate without its key
// or without a CA), and those of files.
absl::StatusOr<std::unique_ptr<EtcdKv>> MakeEtcdClient(const EtcdClientOptions& options);

}  // namespace embla
