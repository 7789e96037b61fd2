// One InspectService.ReadEvictions: writes what a table's log has, a message at a time, and with
// `follow` waits for more. The log drops what a slow reader does not take.
//
// Lives until gRPC is done with it, then deletes itself.
#pragma once

#include <cstdint>
#include <memory>

#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "embla/v1/inspect.pb.h"
#include "server/table/eviction_log.h"

namespace embla {

// gRPC never runs a reactor's callback inside Start* or Finish, so those are called under mu_.
class EvictionsCall final : public grpc::ServerWriteReactor<v1::EvictedRows> {
 public:
  struct Query {
    bool follow = false;
    std::uint64_t log = 0;  // The log in which `from` is a position.
    std::uint64_t from = 0;
  };
  // An error ends the call with it. The call keeps `slot` as long as it lives.
  static EvictionsCall* Start(absl::StatusOr<std::shared_ptr<EvictionLog>> log, const Query& query,
                              std::shared_ptr<void> slot);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // The log's reference to the call, which it may outlive.
  class Wakeup;

  EvictionsCall(std::shared_ptr<EvictionLog> log, const Query& query, std::shared_ptr<void> slot);
  ~EvictionsCall() override = default;

  void WriteMore();
  void WriteMoreLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<EvictionLog> log_;  // Null: the call has failed.
  const bool follow_;
  const std::shared_ptr<void> slot_;
  std::shared_ptr<Wakeup> wakeup_;

  // Lock order: Wakeup's, then mu_, then the log's.
  Mutex mu_;
  v1::EvictedRows message_ ABSL_GUARDED_BY(mu_);  // gRPC reads it while writing_.
  std::uint64_t position_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace embla
