// The answer of a coordinator that does not lead, and who is to be asked next.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "core/base/mutex.h"
#include "embla/v1/coordinator.grpc.pb.h"

namespace embla::wire {

// See proto/embla/v1/redirect.proto.
struct Redirect {
  std::string coordinator;
  std::string admin;
  std::string cluster_id;
  std::string console = {};  // Between coordinators only.
  bool operator==(const Redirect&) const = default;
};

// UNAVAILABLE with the detail.
grpc::Status RedirectStatus(const Redirect& redirect, const std::string& message);
// The detail of `status`, if it has one.
std::optional<Redirect> RedirectOf(const grpc::Status& status);

// "a:1,b:1" as its addresses.
std::vector<std::string> SplitAddresses(std::string_view list);

// Chooses which of several coordinators is asked: one as long as it answers, then the one that it
// names as the leader, then the next of the list.
//
// Thread safety: every method may be called from any thread.
class CoordinatorChoice {
 public:
  // `addresses` is not empty.
  explicit CoordinatorChoice(std::vector<std::string> addresses)
      : addresses_(std::move(addresses)), current_(addresses_.front()) {}

  const std::vector<std::string>& addresses() const { return addresses_; }
  bool has_several() const { return addresses_.size() > 1; }
  std::string current() const;
  // `address` did not answer, or names `leader`, if that is not empty. Later calls go elsewhere.
  void Leave(const std::string& address, const std::string& leader);

 private:
  const std::vector<std::string> addresses_;
  mutable Mutex mu_;
  std::string current_ ABSL_GUARDED_BY(mu_);
  std::size_t next_ ABSL_GUARDED_BY(mu_) = 1;
};

// Id of the cluster of the coordinator at `stub`, which need not lead. Empty: it does not answer
// within half a second.
std::string AskCluster(v1::CoordinatorService::Stub& stub);

// `cluster_of`: ids of clusters by the addresses that serve them; empty: not known.
// InvalidArgument: they are two; names both.
absl::Status CheckOneCluster(const std::map<std::string, std::string>& cluster_of,
                             std::string_view flag);

}  // namespace embla::wire
