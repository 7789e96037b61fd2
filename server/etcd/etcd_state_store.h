// A state store in etcd, for the one coordinator that leads.
//
// The idea: etcd keeps what lasts, this object keeps a copy in memory and answers reads from it.
// The copy is exact, since nobody else can write while it is: every transaction compares the key of
// the election (`fence`) and the revision of PREFIX/head, which every transaction of a commit
// replaces. A leader that was deposed, or another process that has the store open, fails both
// compares; its store then refuses every commit, and its copy is of no more use.
//
// The store's revision is its own counter, in PREFIX/head and beside each value, not etcd's: etcd
// counts for all of its users, and begins anew when it is restored; nodes of the cluster remember
// the store's (docs/decisions/0016-going-back-in-time.md), also over a move from file to etcd.
//
// A commit is one transaction, where etcd's limits allow. A larger one is written to PREFIX/redo
// first, a part per transaction; the transaction that puts the head makes it count; then the parts
// are carried out, each by the transaction that deletes it. Whoever opens the store carries out
// what is left. Commits of a batch are one commit of etcd, at its end.
//
// A transaction whose answer is lost may have been done, or be done later. It is sent again: the
// head names the writer and the revision, so that it is known whether an earlier try was done, and
// a try that arrives late finds another head.
//
// A watch tells of commits of this object: others that have the prefix open cannot commit.
//
// Covered by tests/integration/etcd_store_test.cc (the contract, over real members; large commits,
// members that go) and etcd_state_store_test.cc (lost and late transactions, two leaders, a crash
// after every transaction, over a model of etcd).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "server/etcd/etcd_kv.h"
#include "server/etcd/etcd_layout.h"
#include "server/state_store/state_map.h"
#include "server/state_store/state_store.h"
#include "server/state_store/watch_hub.h"

namespace embla {

struct EtcdStoreOptions {
  std::string prefix = "/embla";
  std::vector<EtcdCompare> fence = {};               // ElectionView::fence. Empty: the head alone.
  absl::Duration attempt = absl::Milliseconds(750);  // For one try at one member.
  absl::Duration timeout = absl::Seconds(5);         // For all tries of one transaction.
  absl::Duration pause = absl::Milliseconds(50);     // Between two tries.
  // Old values are forgotten by etcd after one to two times this. Zero: never.
  absl::Duration compact_after = absl::Minutes(30);
  // Hears how long each commit took at etcd, on the thread that commits. May be null.
  std::function<void(absl::Duration)> on_synced = {};
};

struct StateSnapshot;

// Lock order: mu_, then the hub's. No lock is held over a call of etcd: a commit takes the turn.
class EtcdStateStore final : public StateStore {
 public:
  // Begins a store where there is none, carries out what a commit left undone, and reads
  // everything. `kv` and `clock` are not owned and outlive the store. Errors:
  //   Unavailable         etcd does not answer; who asks again may be luckier
  //   FailedPrecondition  the fence does not hold: another one leads
  //   DataLoss            what is there is not what a store writes
  static absl::StatusOr<std::unique_ptr<EtcdStateStore>> Open(EtcdKv& kv, const Clock& clock,
                                                              const EtcdStoreOptions& options);

  absl::StatusOr<StateEntry> Get(std::string_view key) const override;
  absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const override;
  // FailedPrecondition, and Unavailable: this store writes no more; open it again.
  absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                  std::span<const StateWrite> writes) override;
  void BeginBatch() override;
  // Asks etcd also when nothing was written: with OK the fence held at a moment of this call.
  absl::Status EndBatch() override;
  std::unique_ptr<StateWatch> Watch(std::string_view prefix) override;
  Revision revision() const override;

  // Makes `snapshot` the content of a store that has never been written, revisions and all.
  // FailedPrecondition: it has.
  absl::Status Import(const StateSnapshot& snapshot);

 private:
  EtcdStateStore(EtcdKv& kv, const Clock& clock, const EtcdStoreOptions& options);

  absl::Status Load();
  absl::Status ReadHead(EtcdHead& head);
  absl::Status FinishRedo(const EtcdHead& head);

  void TakeTurn() ABSL_LOCKS_EXCLUDED(mu_);
  void PassTurn() ABSL_LOCKS_EXCLUDED(mu_);
  // The next ones are for the thread whose turn it is.
  absl::StatusOr<Revision> CommitInTurn(std::span<const StateCompare> compares,
                                        std::span<const StateWrite> writes)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Flush(EtcdWrites writes, Revision revision) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteLarge(EtcdWrites writes, Revision revision) ABSL_LOCKS_EXCLUDED(mu_);
  // One transaction of a commit; with a head it becomes the head.
  absl::Status Send(EtcdWrites writes, const EtcdHead* head = nullptr);
  absl::Status Judge(const EtcdHead* head, bool may_be_done);
  EtcdTxn Fenced(EtcdWrites writes) const;
  void CompactAtTimes();
  absl::Status Break(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);

  EtcdKv& kv_;          // Not owned; outlives this object.
  const Clock& clock_;  // Likewise.
  const EtcdStoreOptions options_;
  const EtcdLayout layout_;
  const std::string writer_;

  // Used by the thread whose turn it is.
  EtcdRevision head_at_{};  // At which etcd's revision the head was written; 0: there is none.
  Revision flushed_{};      // The revision in etcd; the copy is ahead within a batch.
  bool is_batch_ = false;
  EtcdWrites batch_;
  EtcdRevision compact_to_{};
  absl::Time compact_at_ = absl::InfiniteFuture();

  mutable Mutex mu_;
  CondVar turn_over_;
  bool turn_taken_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);  // Not OK: no commit any more.
  StateMap map_ ABSL_GUARDED_BY(mu_);
  WatchHub hub_;
};

}  // namespace embla
