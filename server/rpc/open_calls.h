// Counts calls that stay open, such as watches: all, and those of one connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/support/server_callback.h>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/wire/status_codec.h"

namespace embla {

// Thread safety: every public method may be called from any thread.
class OpenCalls {
 public:
  OpenCalls(std::size_t of_one_max, std::size_t all_max)
      : of_one_max_(of_one_max), all_max_(all_max) {}

  // Counts while it lives. The counter outlives it.
  using Ticket = std::shared_ptr<const void>;

  // `peer` is gRPC's name of the connection. Errors: ResourceExhausted.
  absl::StatusOr<Ticket> Enter(const std::string& peer) {
    MutexLock lock(mu_);
    std::size_t& of_one = by_peer_[peer];
    if (of_one < of_one_max_ && all_ < all_max_) {
      ++of_one;
      ++all_;
      return Ticket(nullptr, [this, peer](const void*) { Leave(peer); });
    }
    const absl::Status refused = absl::ResourceExhaustedError(
        absl::StrCat("this connection has ", of_one, " such calls open, at most ", of_one_max_,
                     "; all have ", all_, ", at most ", all_max_));
    if (of_one == 0) by_peer_.erase(peer);
    return refused;
  }

 private:
  void Leave(const std::string& peer) {
    MutexLock lock(mu_);
    --all_;
    const auto found = by_peer_.find(peer);
    if (--found->second == 0) by_peer_.erase(found);
  }

  const std::size_t of_one_max_;
  const std::size_t all_max_;
  Mutex mu_;
  std::size_t all_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, std::size_t> by_peer_ ABSL_GUARDED_BY(mu_);  // Not 0.
};

// A server's stream that is over at once.
template <typename Reply>
class RefusedStream final : public grpc::ServerWriteReactor<Reply> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(wire::ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace embla
