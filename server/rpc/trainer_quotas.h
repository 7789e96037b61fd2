// Quotas of trainers: how many rows and bytes of each may be in flight at a node, and how many rows
// a second it may ask for (docs/security.md, "Quotas").
//
// A trainer is the name of its certificate or token, with all of its sessions and connections.
// Nobody has a name over plaintext: each session, and each connection without one, counts as a
// trainer that is not named. Nodes, operators and admins have no quota.
//
// A rate is kept as the time at which all that was taken would have been served at that rate: a
// request is taken while that lies at most a second ahead, and moves it on by its rows (the generic
// cell rate algorithm of ITU-T I.371, with a second's tolerance). So none is too large, and a large
// one is paid for afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/fresh_content.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"
#include "core/tls/identity.h"
#include "server/rpc/hold.h"
#include "server/rpc/in_flight_budget.h"

namespace embla {

struct TrainerQuota {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t rows_in_flight = kNone;
  std::uint64_t bytes_in_flight = kNone;
  std::uint64_t rows_per_second = kNone;
};

// Quotas by name; "*" is that of each trainer without one of its own.
using TrainerQuotaList = std::map<std::string, TrainerQuota, std::less<>>;
// {"ann": {"rows_per_second": 1000000}, "*": {"rows_in_flight": 500000, "bytes_in_flight":
// 1000000}} InvalidArgument says what is wrong.
absl::StatusOr<TrainerQuotaList> ParseTrainerQuotas(std::string_view json);

using TrainerQuotaFile = FreshContent<TrainerQuotaList>;
// Load it before use: InvalidArgument names --trainer-quotas and the file.
std::shared_ptr<TrainerQuotaFile> OpenTrainerQuotas(const std::string& file);

// Thread safety: every method may be called from any thread.
class TrainerQuotas {
 public:
  // `file` may be null: nobody has a quota. So may `metrics`.
  TrainerQuotas(std::shared_ptr<TrainerQuotaFile> file, Metrics* metrics);

  // One request of a trainer is always in flight, whatever its size. Contributions to synchronous
  // steps, which wait for those of other trainers, are none in flight. The quotas outlive the hold.
  // ResourceExhausted says which quota, and when to come again where that is known.
  absl::StatusOr<Hold> Take(const std::optional<Identity>& caller, const InFlightHolder& holder,
                            std::uint64_t rows, std::uint64_t bytes, absl::Time now);

  // Trainers that are remembered.
  std::size_t accounts() const;

 private:
  struct Account {
    std::uint64_t requests = 0;  // In flight, with rows and bytes of theirs.
    std::uint64_t rows = 0;
    std::uint64_t bytes = 0;
    absl::Time served_at = absl::InfinitePast();
  };

  absl::Status Check(const std::string& trainer, const TrainerQuota& quota, const Account& account,
                     std::uint64_t rows, std::uint64_t bytes, absl::Time now) const;
  void ForgetIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBack(const std::string& trainer, std::uint64_t rows, std::uint64_t bytes);

  const std::shared_ptr<TrainerQuotaFile> file_;
  const Counter refused_;

  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mu_);
  std::size_t forget_at_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace embla
