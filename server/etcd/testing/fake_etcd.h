// A model of etcd in memory: revisions, transactions, leases, its limits. Every process of a test
// has a client and a clock of its own; requests and answers get lost, and requests come late.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "server/etcd/etcd_kv.h"

namespace embla::testing {

// Thread safety: none.
class FakeEtcd {
 public:
  // Leases go by `clock`, which is not owned and outlives the model.
  explicit FakeEtcd(const Clock& clock) : clock_(clock) {}

  absl::StatusOr<EtcdOutcome> Apply(const EtcdTxn& txn);
  EtcdListing List(const std::string& prefix);
  EtcdGrant Grant(absl::Duration ttl);
  absl::StatusOr<absl::Duration> KeepAlive(EtcdLease lease);
  void Revoke(EtcdLease lease);
  // Its leader has changed: leases begin anew, so none ends earlier than its holder thinks.
  void ProlongLeases();

  // A transaction that arrives when DeliverLate is called.
  void Keep(EtcdTxn txn) { late_.push_back(std::move(txn)); }
  void DeliverLate();

 private:
  struct Lease {
    absl::Duration ttl;
    absl::Time until;
  };
  struct Item {
    std::string value;
    EtcdRevision created{};
    EtcdRevision modified{};
    EtcdLease lease{};
  };
  void Expire();
  void Delete(EtcdLease lease);
  bool Holds(const EtcdCompare& compare) const;

  const Clock& clock_;
  std::int64_t revision_ = 1;
  std::int64_t last_lease_ = 0;
  std::map<std::string, Item> items_;
  std::map<EtcdLease, Lease> leases_;
  std::vector<EtcdTxn> late_;
};

enum class EtcdFault : std::uint8_t {
  kNone,
  kRequestLost,  // Not done, and Unavailable.
  kAnswerLost,   // Done, and Unavailable.
  kLate,         // Done at FakeEtcd::DeliverLate, and Unavailable.
};

class FakeEtcdClient final : public EtcdKv {
 public:
  // Each call takes a millisecond of `clock`, each that fails takes all of its time.
  FakeEtcdClient(FakeEtcd& etcd, ManualClock& clock) : etcd_(etcd), clock_(clock) {}

  // Asked before each call; empty: no fault.
  std::function<EtcdFault()> fault;
  std::uint64_t transactions = 0;  // Transactions that were done and answered.

  absl::StatusOr<EtcdListing> List(const std::string& prefix, absl::Duration timeout) override;
  absl::StatusOr<EtcdOutcome> Commit(const EtcdTxn& txn, absl::Duration timeout) override;
  absl::Status Compact(EtcdRevision revision, absl::Duration timeout) override;
  absl::StatusOr<EtcdGrant> Grant(absl::Duration ttl, absl::Duration timeout) override;
  absl::StatusOr<absl::Duration> KeepAlive(EtcdLease lease, absl::Duration timeout) override;
  absl::Status Revoke(EtcdLease lease, absl::Duration timeout) override;

 private:
  absl::Status Reach(absl::Duration timeout);

  FakeEtcd& etcd_;
  ManualClock& clock_;
};

}  // namespace embla::testing
