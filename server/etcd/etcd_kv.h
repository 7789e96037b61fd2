// etcd as the coordinator's store and election see it: a few calls without gRPC's types, so that
// tests can put a model in its place (testing/fake_etcd.h). etcd_client.h speaks to real members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace embla {

enum class EtcdRevision : std::int64_t {};  // etcd's own counter, one for all of its users.
enum class EtcdLease : std::int64_t {};     // 0: none.

struct EtcdEntry {
  std::string key;
  std::string value;
  EtcdRevision created{};
  EtcdRevision modified{};
};

struct EtcdListing {
  std::vector<EtcdEntry> entries;  // By key.
  EtcdRevision revision{};         // All of them as they were then.
};

// Holds when the key was created, or last modified, at `revision`; 0: when there is no such key.
struct EtcdCompare {
  enum class Of : std::uint8_t { kCreated, kModified };
  std::string key;
  Of of = Of::kModified;
  EtcdRevision revision{};
  bool operator==(const EtcdCompare&) const = default;
};

struct EtcdPut {
  std::string key;
  std::optional<std::string> value;  // None: delete the key.
  EtcdLease lease{};                 // The key goes with it.
};

// A transaction without writes is a linearizable question whether `compares` hold.
struct EtcdTxn {
  std::vector<EtcdCompare> compares;
  std::vector<EtcdPut> writes;  // No key twice.
};

struct EtcdOutcome {
  bool holds = false;  // All compares held, and the writes are done.
  EtcdRevision revision{};
};

struct EtcdGrant {
  EtcdLease lease{};
  absl::Duration ttl;  // May differ from the one that was asked for.
};

// Less than etcd takes by default in one transaction (--max-txn-ops 128, --max-request-bytes 1.5
// MiB), with room for keys and for the transaction's frame.
inline constexpr std::size_t kEtcdTxnOpsMax = 100;
inline constexpr std::size_t kEtcdTxnBytesMax = std::size_t{1} << 20;

// Every call is one attempt, at one member; the next call after a failure goes to the next one.
// Errors: Unavailable, DeadlineExceeded (of a write it is then unknown whether it was done, or will
// be), ResourceExhausted (etcd's space is used up), PermissionDenied, Unauthenticated.
//
// Thread safety: every method may be called from any thread.
class EtcdKv {
 public:
  virtual ~EtcdKv() = default;

  // Linearizable: no older than what was acknowledged to anybody before the call.
  virtual absl::StatusOr<EtcdListing> List(const std::string& prefix, absl::Duration timeout) = 0;
  virtual absl::StatusOr<EtcdOutcome> Commit(const EtcdTxn& txn, absl::Duration timeout) = 0;
  // Forgets what keys were before `revision`.
  virtual absl::Status Compact(EtcdRevision revision, absl::Duration timeout) = 0;

  virtual absl::StatusOr<EtcdGrant> Grant(absl::Duration ttl, absl::Duration timeout) = 0;
  // The lease's time from now on. NotFound: it is over.
  virtual absl::StatusOr<absl::Duration> KeepAlive(EtcdLease lease, absl::Duration timeout) = 0;
  virtual absl::Status Revoke(EtcdLease lease, absl::Duration timeout) = 0;
};

// Whether a call with this outcome may go better at another member, or a moment later.
inline bool IsWorthRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace embla
