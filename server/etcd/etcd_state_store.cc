#include "server/etcd/etcd_state_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/etcd/etcd_retry.h"
#include "server/state_store/state_format.h"

namespace embla {

EtcdStateStore::EtcdStateStore(EtcdKv& kv, const Clock& clock, const EtcdStoreOptions& options)
    : kv_(kv),
      clock_(clock),
      options_(options),
      layout_(options.prefix),
      writer_(RandomHexId()),
      compact_at_(clock.Now() + options.compact_after) {}

absl::StatusOr<std::unique_ptr<EtcdStateStore>> EtcdStateStore::Open(
    EtcdKv& kv, const Clock& clock, const EtcdStoreOptions& options) {
  std::unique_ptr<EtcdStateStore> store(new EtcdStateStore(kv, clock, options));
  EMBLA_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status EtcdStateStore::ReadHead(EtcdHead& head) {
  const EtcdRetry retry{clock_, options_.attempt, options_.timeout, options_.pause};
  EMBLA_ASSIGN_OR_RETURN(const EtcdListing found, retry.Call([&](absl::Duration timeout) {
    return kv_.List(layout_.Head(), timeout);
  }));
  head_at_ = {};
  head = {};
  for (const EtcdEntry& entry : found.entries) {
    if (entry.key != layout_.Head()) continue;
    absl::StatusOr<EtcdHead> read = DecodeEtcdHead(entry.value);
    if (!read.ok()) return Annotate(read.status(), "etcd key " + entry.key);
    head = *std::move(read);
    head_at_ = entry.modified;
  }
  return absl::OkStatus();
}

// The fence held before the first read, since it is the caller's; from then on nobody else writes.
// So what several reads bring belongs together, if the fence still holds after them.
absl::Status EtcdStateStore::Load() {
  EtcdHead head;
  EMBLA_RETURN_IF_ERROR(ReadHead(head));
  if (head_at_ == EtcdRevision{}) {
    const EtcdHead first{.writer = writer_};
    EMBLA_RETURN_IF_ERROR(Send({}, &first));
    head = first;
  }
  EMBLA_RETURN_IF_ERROR(FinishRedo(head));
  const EtcdRetry retry{clock_, options_.attempt * 8, options_.timeout * 4, options_.pause};
  EMBLA_ASSIGN_OR_RETURN(const EtcdListing data, retry.Call([&](absl::Duration timeout) {
    return kv_.List(layout_.Data(), timeout);
  }));
  EMBLA_ASSIGN_OR_RETURN(const EtcdListing more, retry.Call([&](absl::Duration timeout) {
    return kv_.List(layout_.More(), timeout);
  }));
  EMBLA_RETURN_IF_ERROR(Send({}));
  EMBLA_ASSIGN_OR_RETURN(std::vector<StateEntry> entries, layout_.Read(data, more));
  for (const StateEntry& entry : entries) {
    if (entry.revision <= head.revision) continue;
    return absl::DataLossError(absl::StrCat("etcd key ", layout_.Data(), entry.key,
                                            " is of revision ", ToInt(entry.revision),
                                            ", the store only at ", ToInt(head.revision)));
  }
  flushed_ = head.revision;
  const MutexLock lock(mu_);
  map_ = StateMap(head.revision, std::move(entries));
  return absl::OkStatus();
}

// Parts of other revisions are of commits that never counted.
absl::Status EtcdStateStore::FinishRedo(const EtcdHead& head) {
  const EtcdRetry retry{clock_, options_.attempt * 8, options_.timeout * 4, options_.pause};
  EMBLA_ASSIGN_OR_RETURN(const EtcdListing found, retry.Call([&](absl::Duration timeout) {
    return kv_.List(layout_.Redo(), timeout);
  }));
  std::map<std::string, const EtcdEntry*> parts;
  for (const EtcdEntry& entry : found.entries) parts[entry.key] = &entry;
  for (std::uint32_t part = 0; part < head.redo; ++part) {
    const auto left = parts.find(layout_.RedoPart(head.revision, part));
    if (left == parts.end()) continue;  // Carried out.
    EMBLA_ASSIGN_OR_RETURN(EtcdWrites writes, DecodeRedo(left->second->value));
    writes[left->first] = std::nullopt;
    EMBLA_RETURN_IF_ERROR(Send(std::move(writes)));
    parts.erase(left);
  }
  EtcdWrites leftovers;
  for (const auto& [key, entry] : parts) leftovers[key] = std::nullopt;
  while (!leftovers.empty()) EMBLA_RETURN_IF_ERROR(Send(TakeOneTxn(leftovers)));
  return absl::OkStatus();
}

absl::StatusOr<StateEntry> EtcdStateStore::Get(std::string_view key) const {
  const MutexLock lock(mu_);
  return map_.Get(key);
}

absl::StatusOr<std::vector<StateEntry>> EtcdStateStore::List(std::string_view prefix) const {
  const MutexLock lock(mu_);
  return map_.List(prefix);
}

std::unique_ptr<StateWatch> EtcdStateStore::Watch(std::string_view prefix) {
  return hub_.Watch(prefix);
}

Revision EtcdStateStore::revision() const {
  const MutexLock lock(mu_);
  return map_.revision();
}

void EtcdStateStore::TakeTurn() {
  const MutexLock lock(mu_);
  while (turn_taken_) turn_over_.Wait(mu_);
  turn_taken_ = true;
}

void EtcdStateStore::PassTurn() {
  const MutexLock lock(mu_);
  turn_taken_ = false;
  turn_over_.NotifyAll();
}

absl::StatusOr<Revision> EtcdStateStore::Commit(std::span<const StateCompare> compares,
                                                std::span<const StateWrite> writes) {
  EMBLA_RETURN_IF_ERROR(ValidateCommit(compares, writes));
  TakeTurn();
  absl::StatusOr<Revision> revision = CommitInTurn(compares, writes);
  PassTurn();
  return revision;
}

absl::StatusOr<Revision> EtcdStateStore::CommitInTurn(std::span<const StateCompare> compares,
                                                      std::span<const StateWrite> writes) {
  EtcdWrites mine;
  EtcdWrites& raw = is_batch_ ? batch_ : mine;
  Revision revision{};
  {
    const MutexLock lock(mu_);
    EMBLA_RETURN_IF_ERROR(broken_);
    EMBLA_RETURN_IF_ERROR(map_.Check(compares));
    revision = map_.next_revision();
    for (const StateWrite& write : writes) {
      const absl::StatusOr<StateEntry> before = map_.Get(write.key);
      layout_.AddWrites(write.key, write.value, before.ok() ? before->value.size() : 0, revision,
                        raw);
    }
  }
  if (!is_batch_) EMBLA_RETURN_IF_ERROR(Flush(std::move(mine), revision));
  const MutexLock lock(mu_);
  hub_.Publish(map_.Apply(writes));  // Under the lock: watchers see commits in their order.
  return revision;
}

void EtcdStateStore::BeginBatch() {
  TakeTurn();
  is_batch_ = true;
  PassTurn();
}

absl::Status EtcdStateStore::EndBatch() {
  TakeTurn();
  is_batch_ = false;
  absl::Status status;
  Revision revision{};
  {
    const MutexLock lock(mu_);
    status = broken_;
    revision = map_.revision();
  }
  if (status.ok()) {
    EtcdWrites writes = std::exchange(batch_, {});
    // Commits without a write count, too.
    status = Flush(std::move(writes), revision);
    if (status.ok()) CompactAtTimes();
  }
  PassTurn();
  return status;
}

absl::Status EtcdStateStore::Flush(EtcdWrites writes, Revision revision) {
  const absl::Time begun = clock_.Now();
  absl::Status status;
  if (writes.empty() && revision == flushed_) {
    status = Send({});
  } else {
    EtcdWrites first = TakeOneTxn(writes);
    if (writes.empty()) {
      const EtcdHead head{.revision = revision, .redo = 0, .writer = writer_};
      status = Send(std::move(first), &head);
    } else {
      writes.merge(first);
      status = WriteLarge(std::move(writes), revision);
    }
    if (options_.on_synced) options_.on_synced(clock_.Now() - begun);
  }
  if (!status.ok()) return Break(status);
  flushed_ = revision;
  return absl::OkStatus();
}

absl::Status EtcdStateStore::WriteLarge(EtcdWrites writes, Revision revision) {
  EtcdHead head{.revision = revision, .redo = 0, .writer = writer_};
  std::vector<EtcdWrites> parts;
  for (; !writes.empty(); ++head.redo) {
    EtcdWrites part = TakeOneTxn(writes);
    const std::string key = layout_.RedoPart(revision, head.redo);
    EMBLA_RETURN_IF_ERROR(Send({{key, EncodeRedo(part)}}));
    part[key] = std::nullopt;
    parts.push_back(std::move(part));
  }
  EMBLA_RETURN_IF_ERROR(Send({}, &head));
  for (EtcdWrites& part : parts) EMBLA_RETURN_IF_ERROR(Send(std::move(part)));
  return absl::OkStatus();
}

EtcdTxn EtcdStateStore::Fenced(EtcdWrites writes) const {
  EtcdTxn txn{.compares = options_.fence, .writes = {}};
  txn.compares.push_back({layout_.Head(), EtcdCompare::Of::kModified, head_at_});
  for (auto& [key, value] : writes) txn.writes.push_back({key, std::move(value), EtcdLease{}});
  return txn;
}

absl::Status EtcdStateStore::Send(EtcdWrites writes, const EtcdHead* head) {
  if (head != nullptr) writes[layout_.Head()] = EncodeEtcdHead(*head);
  const EtcdTxn txn = Fenced(std::move(writes));
  const EtcdRetry retry{clock_, options_.attempt, options_.timeout, options_.pause};
  bool may_be_done = false;  // By a try whose answer was lost.
  EMBLA_ASSIGN_OR_RETURN(const EtcdOutcome outcome, retry.Call([&](absl::Duration timeout) {
    absl::StatusOr<EtcdOutcome> tried = kv_.Commit(txn, timeout);
    may_be_done = may_be_done || IsWorthRetry(tried.status());
    return tried;
  }));
  if (!outcome.holds) return Judge(head, may_be_done);
  if (head != nullptr) head_at_ = outcome.revision;
  return absl::OkStatus();
}

// The compares of a transaction did not hold: it was done before, or somebody else has the store.
absl::Status EtcdStateStore::Judge(const EtcdHead* head, bool may_be_done) {
  if (head != nullptr && may_be_done) {
    EtcdHead found;
    const EtcdRevision before = head_at_;
    const absl::Status read = ReadHead(found);
    const bool is_done = read.ok() && found == *head;
    if (is_done) return Send({});  // The fence may be gone since.
    head_at_ = before;
    EMBLA_RETURN_IF_ERROR(read);
  }
  return absl::FailedPreconditionError(
      "another coordinator leads, or has the store open: nothing was written");
}

void EtcdStateStore::CompactAtTimes() {
  const absl::Time now = clock_.Now();
  if (options_.compact_after <= absl::ZeroDuration() || now < compact_at_) return;
  compact_at_ = now + options_.compact_after;
  const EtcdRevision old = std::exchange(compact_to_, head_at_);
  if (old == EtcdRevision{}) return;
  const absl::Status compacted = kv_.Compact(old, options_.attempt);
  if (!compacted.ok()) LogWarning("state_store", "cannot compact: ", compacted.message());
}

absl::Status EtcdStateStore::Break(const absl::Status& cause) {
  const absl::Status broken = absl::UnavailableError(
      absl::StrCat("the state store in etcd under ", options_.prefix,
                   " writes no more, whether the last commit lasts is unknown until it is opened "
                   "again: ",
                   cause.message()));
  LogError("state_store", broken.message());
  const MutexLock lock(mu_);
  broken_ = broken;
  return broken;
}

absl::Status EtcdStateStore::Import(const StateSnapshot& snapshot) {
  TakeTurn();
  EtcdWrites writes;
  absl::Status status;
  {
    const MutexLock lock(mu_);
    status = broken_;
    if (status.ok() && (map_.revision() != kAbsent || !map_.List("").empty())) {
      status = absl::FailedPreconditionError(
          absl::StrCat("the store in etcd under ", options_.prefix, " is not empty: it has ",
                       map_.List("").size(), " keys at revision ", ToInt(map_.revision())));
    }
  }
  for (const StateEntry& entry : snapshot.entries) {
    layout_.AddWrites(entry.key, entry.value, 0, entry.revision, writes);
  }
  if (status.ok()) status = Flush(std::move(writes), snapshot.revision);
  if (status.ok()) {
    const MutexLock lock(mu_);
    map_ = StateMap(snapshot.revision, snapshot.entries);
  }
  PassTurn();
  return status;
}

}  // namespace embla
