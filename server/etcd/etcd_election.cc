#include "server/etcd/etcd_election.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"

namespace embla {

EtcdElection::EtcdElection(EtcdKv& kv, const Clock& clock, const EtcdElectionOptions& options,
                           std::string value)
    : kv_(kv), clock_(clock), options_(options), value_(std::move(value)) {}

absl::StatusOr<ElectionView> EtcdElection::Step() {
  if (lease_ != EtcdLease{} && clock_.Now() >= valid_until_) {
    DropLease();
    return absl::UnavailableError("etcd has not prolonged the lease in time");
  }
  EMBLA_RETURN_IF_ERROR(KeepLease());
  if (created_ == EtcdRevision{}) EMBLA_RETURN_IF_ERROR(StandForElection());
  EMBLA_ASSIGN_OR_RETURN(const EtcdListing found, kv_.List(options_.prefix, options_.attempt));
  const EtcdEntry* first = nullptr;
  const bool was_candidate = std::exchange(created_, {}) != EtcdRevision{};
  for (const EtcdEntry& candidate : found.entries) {
    if (candidate.key == key_) created_ = candidate.created;
    if (first == nullptr || candidate.created < first->created) first = &candidate;
  }
  // The key goes with its lease only. A key that was not seen yet may still come.
  if (was_candidate && created_ == EtcdRevision{}) DropLease();
  is_leading_ = first != nullptr && first->key == key_;
  ElectionView view{.leads = is_leading_, .leader = first == nullptr ? "" : first->value};
  if (is_leading_) view.fence = {{key_, EtcdCompare::Of::kCreated, created_}};
  return view;
}

absl::Status EtcdElection::KeepLease() {
  const absl::Time now = clock_.Now();
  if (lease_ == EtcdLease{}) {
    EMBLA_ASSIGN_OR_RETURN(const EtcdGrant grant, kv_.Grant(options_.ttl, options_.attempt));
    lease_ = grant.lease;
    key_ = absl::StrCat(options_.prefix, absl::StrFormat("%016x", ToInt(lease_)));
    valid_until_ = now + grant.ttl;
    keep_at_ = now + options_.keep_alive;
  } else if (now >= keep_at_) {
    const absl::StatusOr<absl::Duration> left = kv_.KeepAlive(lease_, options_.attempt);
    if (absl::IsNotFound(left.status())) DropLease();
    if (!left.ok()) return left.status();
    valid_until_ = now + *left;
    keep_at_ = now + options_.keep_alive;
  }
  return absl::OkStatus();
}

absl::Status EtcdElection::StandForElection() {
  const EtcdTxn txn{.compares = {{key_, EtcdCompare::Of::kCreated, EtcdRevision{}}},
                    .writes = {{key_, value_, lease_}}};
  return kv_.Commit(txn, options_.attempt).status();
}

void EtcdElection::DropLease() {
  lease_ = {};
  key_.clear();
  created_ = {};
  is_leading_ = false;
  valid_until_ = absl::InfinitePast();
}

void EtcdElection::Resign() {
  if (lease_ != EtcdLease{}) (void)kv_.Revoke(lease_, options_.attempt);
  DropLease();
}

absl::Status EtcdElection::SetValue(std::string value) {
  value_ = std::move(value);
  if (created_ == EtcdRevision{}) return absl::OkStatus();
  const EtcdTxn txn{.compares = {{key_, EtcdCompare::Of::kCreated, created_}},
                    .writes = {{key_, value_, lease_}}};
  return kv_.Commit(txn, options_.attempt).status();
}

}  // namespace embla
