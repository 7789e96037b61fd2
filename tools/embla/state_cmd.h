// embla state ...
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

struct StateCopyFlags {
  std::string from;  // A state directory, or etcd://...
  std::string to;
  // The cluster's key, for a directory that is made of etcd's content. Empty: it gets none.
  std::string key_file;
  std::string etcd_ca_file;  // See EtcdClientOptions; for both ends.
  std::string etcd_cert_file;
  std::string etcd_key_file;
};

std::vector<Verb> StateVerbs();

// Copies a cluster's state while no coordinator runs, revisions and all. Errors:
//   NotFound            `from` has no state
//   FailedPrecondition  a coordinator runs, or `to` is not empty
//   DataLoss            `from` is damaged
// and those of files and of etcd.
absl::Status StateCopyVerb(const StateCopyFlags& flags, const Output& output);

}  // namespace embla::cli
