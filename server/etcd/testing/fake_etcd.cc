#include "server/etcd/testing/fake_etcd.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/ids.h"
#include "core/base/status_macros.h"

namespace embla::testing {
namespace {

// Defaults of etcd.
constexpr std::size_t kOpsMax = 128;
constexpr std::size_t kBytesMax = 1'572'864;

absl::Status CheckLimits(const EtcdTxn& txn) {
  std::size_t bytes = 0;
  std::set<std::string> keys;
  for (const EtcdPut& write : txn.writes) {
    bytes += write.key.size() + (write.value ? write.value->size() : 0) + 16;
    if (!keys.insert(write.key).second) {
      return absl::InvalidArgumentError("duplicate key given in txn request");
    }
  }
  if (std::max(txn.writes.size(), txn.compares.size()) > kOpsMax) {
    return absl::InvalidArgumentError("too many operations in txn request");
  }
  if (bytes > kBytesMax) return absl::InvalidArgumentError("request is too large");
  return absl::OkStatus();
}

}  // namespace

void FakeEtcd::Expire() {
  std::vector<EtcdLease> over;
  for (const auto& [id, lease] : leases_) {
    if (clock_.Now() >= lease.until) over.push_back(id);
  }
  for (const EtcdLease lease : over) Delete(lease);
}

void FakeEtcd::Delete(EtcdLease lease) {
  if (leases_.erase(lease) == 0) return;
  ++revision_;
  std::erase_if(items_, [&](const auto& item) { return item.second.lease == lease; });
}

bool FakeEtcd::Holds(const EtcdCompare& compare) const {
  const auto item = items_.find(compare.key);
  if (item == items_.end()) return compare.revision == EtcdRevision{};
  return compare.revision ==
         (compare.of == EtcdCompare::Of::kCreated ? item->second.created : item->second.modified);
}

absl::StatusOr<EtcdOutcome> FakeEtcd::Apply(const EtcdTxn& txn) {
  Expire();
  EMBLA_RETURN_IF_ERROR(CheckLimits(txn));
  const bool holds =
      std::ranges::all_of(txn.compares, [&](const EtcdCompare& each) { return Holds(each); });
  if (!holds) return EtcdOutcome{false, EtcdRevision{revision_}};
  for (const EtcdPut& write : txn.writes) {
    if (write.lease != EtcdLease{} && !leases_.contains(write.lease)) {
      return absl::NotFoundError("requested lease not found");
    }
  }
  if (!txn.writes.empty()) ++revision_;
  for (const EtcdPut& write : txn.writes) {
    if (!write.value) {
      items_.erase(write.key);
      continue;
    }
    Item& item = items_[write.key];
    if (item.created == EtcdRevision{}) item.created = EtcdRevision{revision_};
    item.value = *write.value;
    item.modified = EtcdRevision{revision_};
    item.lease = write.lease;
  }
  return EtcdOutcome{true, EtcdRevision{revision_}};
}

EtcdListing FakeEtcd::List(const std::string& prefix) {
  Expire();
  EtcdListing listing{{}, EtcdRevision{revision_}};
  for (auto item = items_.lower_bound(prefix);
       item != items_.end() && item->first.starts_with(prefix); ++item) {
    listing.entries.push_back(
        {item->first, item->second.value, item->second.created, item->second.modified});
  }
  return listing;
}

EtcdGrant FakeEtcd::Grant(absl::Duration ttl) {
  const EtcdLease lease{++last_lease_};
  leases_[lease] = {ttl, clock_.Now() + ttl};
  return {lease, ttl};
}

absl::StatusOr<absl::Duration> FakeEtcd::KeepAlive(EtcdLease lease) {
  Expire();
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return absl::NotFoundError("the lease is over");
  found->second.until = clock_.Now() + found->second.ttl;
  return found->second.ttl;
}

void FakeEtcd::Revoke(EtcdLease lease) { Delete(lease); }

void FakeEtcd::ProlongLeases() {
  for (auto& [id, lease] : leases_) lease.until = clock_.Now() + lease.ttl;
}

void FakeEtcd::DeliverLate() {
  for (const EtcdTxn& txn : std::exchange(late_, {})) (void)Apply(txn);
}

absl::Status FakeEtcdClient::Reach(absl::Duration timeout) {
  if (!fault || fault() == EtcdFault::kNone) {
    clock_.Advance(absl::Milliseconds(1));
    return absl::OkStatus();
  }
  clock_.Advance(timeout);
  return absl::UnavailableError("etcd does not answer");
}

absl::StatusOr<EtcdListing> FakeEtcdClient::List(const std::string& prefix,
                                                 absl::Duration timeout) {
  EMBLA_RETURN_IF_ERROR(Reach(timeout));
  return etcd_.List(prefix);
}

absl::StatusOr<EtcdOutcome> FakeEtcdClient::Commit(const EtcdTxn& txn, absl::Duration timeout) {
  const EtcdFault happens = fault ? fault() : EtcdFault::kNone;
  if (happens == EtcdFault::kNone) {
    clock_.Advance(absl::Milliseconds(1));
    ++transactions;
    return etcd_.Apply(txn);
  }
  clock_.Advance(timeout);
  if (happens == EtcdFault::kAnswerLost) (void)etcd_.Apply(txn);
  if (happens == EtcdFault::kLate) etcd_.Keep(txn);
  return absl::UnavailableError("etcd does not answer");
}

absl::Status FakeEtcdClient::Compact(EtcdRevision, absl::Duration timeout) {
  return Reach(timeout);
}

absl::StatusOr<EtcdGrant> FakeEtcdClient::Grant(absl::Duration ttl, absl::Duration timeout) {
  EMBLA_RETURN_IF_ERROR(Reach(timeout));
  return etcd_.Grant(ttl);
}

absl::StatusOr<absl::Duration> FakeEtcdClient::KeepAlive(EtcdLease lease, absl::Duration timeout) {
  EMBLA_RETURN_IF_ERROR(Reach(timeout));
  return etcd_.KeepAlive(lease);
}

absl::Status FakeEtcdClient::Revoke(EtcdLease lease, absl::Duration timeout) {
  EMBLA_RETURN_IF_ERROR(Reach(timeout));
  etcd_.Revoke(lease);
  return absl::OkStatus();
}

}  // namespace embla::testing
