// Test support: a ShardNode whose rows are a function of their ids, and whose requests can be held.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/mutex.h"
#include "server/shard/journal.h"
#include "server/shard/session_gate.h"
#include "server/shard/shard_node.h"
#include "server/shard/table_inspector.h"

namespace embla {

inline constexpr absl::Duration kTestWaitMax = absl::Seconds(60);

// Row r of every table is r, r + 1/64, r + 2/64, ... Pooled parts give zeros. Table 404 does not
// exist. Calls `done` on the caller's thread unless held.
class FakeShardNode final : public ShardNode {
 public:
  static float Value(RowId row, std::uint32_t column) {
    return static_cast<float>(ToInt(row)) + static_cast<float>(column) / 64.0f;
  }

  absl::Status InstallPlan(PlanPtr plan, NodeId self) override {
    MutexLock lock(mu_);
    self_ = self;
    if (install_status_.ok()) plan_ = std::move(plan);
    changed_.NotifyAll();
    return install_status_;
  }
  SessionGate& sessions() override { return sessions_; }
  absl::Status CloseSessions(const ClosedSessions& closed) override {
    MutexLock lock(mu_);
    closed_.Include(closed);
    sessions_.Close(closed);
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  PlanPtr plan() const override {
    MutexLock lock(mu_);
    return plan_;
  }

  void Lookup(LookupBatch batch, absl::Time deadline, LookupFrames frames,
              LookupDone done) override {
    Buffer rows = pool_.Take(RowsBytes(batch));
    auto* out = reinterpret_cast<float*>(rows.data());
    bool found = true;
    for (const LookupPart& part : batch.parts) {
      if (part.table == TableId{404}) found = false;
      const bool pooled = part.pooling != Pooling::kNone;
      for (std::size_t i = 0; i < part.output_rows(); ++i) {
        for (std::uint32_t c = part.column_begin; c < part.column_end; ++c) {
          *out++ = pooled ? 0.0f : Value(part.ids[i], c);
        }
      }
    }
    auto answer = [done = std::move(done), frames = std::move(frames),
                   rows = SharedBuffer(std::move(rows)), found] {
      if (!found) return done(absl::NotFoundError("table 404 does not exist"));
      const std::size_t half = frames.send == nullptr ? 0 : rows.size() / 2;
      if (half > 0) frames.send(PlanVersion{3}, rows.Part(0, half));
      done(LookupResult{.plan_version = PlanVersion{3},
                        .rows = rows.Part(half, rows.size()),
                        .sent_bytes = half});
    };
    Take(std::move(answer), deadline);
  }

  void Update(UpdateBatch batch, absl::Time deadline, UpdateDone done) override {
    {
      MutexLock lock(mu_);
      for (const UpdatePart& part : batch.parts) updated_rows_ += part.ids.size();
      if (batch.gradients_are_finite) ++finite_updates_;
    }
    Take(
        [done = std::move(done), seq = batch.seq] {
          done(UpdateResult{.plan_version = PlanVersion{3}, .duplicate = seq == UpdateSeq{7}});
        },
        deadline);
  }

  absl::Status ReadRows(const RowsQuery& query,
                        const std::function<absl::Status(Buffer)>& sink) override {
    if (query.table == TableId{404}) return absl::NotFoundError("table 404 does not exist");
    for (std::int64_t row = query.row_begin; row < query.row_end; ++row) {
      Buffer block = Buffer::Allocate(block_bytes_);
      std::memset(block.data(), static_cast<int>(row), block.size());
      const absl::Status status = sink(std::move(block));
      MutexLock lock(mu_);
      last_read_ = status;
      if (!status.ok()) {
        changed_.NotifyAll();
        return status;
      }
      ++blocks_read_;
      changed_.NotifyAll();
    }
    return absl::OkStatus();
  }

  // Every table has two groups whose weights were 0.5 from their means, table 404 excepted.
  void Sync(const SyncQuery& query, absl::Time, SyncDone done) override {
    SyncResult result{.plan_version = PlanVersion{3}, .tables = {}};
    for (const TableId table : query.tables) {
      if (table == TableId{404}) return done(absl::NotFoundError("table 404 does not exist"));
      result.tables.push_back(
          {.table = table, .replica_groups = 2, .values = 8, .divergence_max = 0.5, .squares = 2});
    }
    done(std::move(result));
  }

  void ApplyReplicated(ReplicaMessage message, absl::Time, ReplicaDone done) override {
    if (on_replicated_) return on_replicated_(message, done);
    done(absl::FailedPreconditionError("no replica here"));
  }
  CopyView ViewCopy(TableId) const override { return {}; }
  void LeadAsItIs(TableId) override {}
  void set_replica_transport(ReplicaTransport*) override {}
  void BeginStop() override {}
  void set_journal(Journal*) override {}
  void Apply(Decision, AppliedDone) override { EMBLA_CHECK(false); }
  UnitHost& units() override { EMBLA_CHECK(false); }
  NodeImages& images() override { EMBLA_CHECK(false); }
  // Every id has the row of its own number, in bucket 5 of device 1.
  void ExplainId(TableId, RowId id, ExplainDone done) override {
    IdExplanation explanation;
    explanation.device = 1;
    explanation.bucket = 5;
    explanation.row = ToInt(id);
    done(std::move(explanation));
  }

  // No table is a ZCH table that could be surveyed or swept.
  void SurveyTable(TableId, std::uint64_t, SurveyDone done) override {
    done(absl::InvalidArgumentError("no zch table"));
  }
  void SweepTable(const SweepQuery&, absl::Time, SweepDone done) override {
    done(absl::InvalidArgumentError("no zch table"));
  }
  absl::StatusOr<std::shared_ptr<EvictionLog>> Evictions(TableId) override {
    return absl::InvalidArgumentError("no zch table");
  }

  absl::StatusOr<std::vector<UnitContent>> InspectTable(TableId, const GivenUp&) override {
    return std::vector<UnitContent>();
  }
  std::vector<UnitStandings> OwnedUnits() override { return {}; }
  // Has heard of every change, and made no step.
  std::vector<StepReport> StepReports() const override {
    MutexLock lock(mu_);
    std::vector<StepReport> reports;
    for (const TablePlan& table : plan_->tables()) {
      if (!table.spec.sync.has_value()) continue;
      reports.push_back({.table = table.spec.id, .change = table.steps.changes});
      if (table.steps.At(0) != nullptr) reports.back().lacks = lacks;
    }
    return reports;
  }
  std::vector<std::int64_t> device_used_bytes() const override { return {11, 22}; }
  std::vector<std::string> device_stopped() const override { return {"", stopped}; }

  // --- What tests do.

  std::string stopped;           // Device 1, for that reason. Before anybody asks.
  std::vector<Rank> lacks = {};  // Step 0 of every table waits for these, once there are members.

  // Requests wait until Release.
  void Hold() {
    MutexLock lock(mu_);
    holding_ = true;
  }
  // Answers the requests that are held, the newest first.
  void Release() {
    std::vector<std::function<void()>> held;
    {
      MutexLock lock(mu_);
      holding_ = false;
      held = std::exchange(held_, {});
    }
    for (auto answer = held.rbegin(); answer != held.rend(); ++answer) (*answer)();
  }
  // Waits until `condition` holds; it is checked after every change, under the node's lock.
  bool Await(const std::function<bool(const FakeShardNode&)>& condition) {
    const absl::Time until = Clock::Real().Now() + kTestWaitMax;
    MutexLock lock(mu_);
    while (!condition(*this)) {
      const absl::Duration left = until - Clock::Real().Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mu_, left);
    }
    return true;
  }
  void FailInstalls(absl::Status status) {
    MutexLock lock(mu_);
    install_status_ = std::move(status);
  }
  void OnReplicated(std::function<void(const ReplicaMessage&, const ReplicaDone&)> handler) {
    on_replicated_ = std::move(handler);
  }
  void SetBlockBytes(std::size_t bytes) { block_bytes_ = bytes; }

  // For conditions.
  std::size_t held() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return held_.size(); }
  std::size_t taken() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return taken_; }
  // Updates whose gradients were seen to be finite before they came here.
  std::size_t finite_updates() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return finite_updates_; }
  std::size_t updated_rows() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return updated_rows_; }
  std::int64_t blocks_read() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return blocks_read_; }
  absl::Status last_read() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return last_read_; }
  absl::Time last_deadline() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return last_deadline_; }
  const ClosedSessions& closed() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_; }
  NodeId self() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return self_; }
  PlanVersion version() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return plan_->version(); }
  // Requires: the plan that is installed has it.
  const TablePlan& table(std::string_view name) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *plan_->FindTable(name);
  }

 private:
  static std::size_t RowsBytes(const LookupBatch& batch) {
    std::size_t bytes = 0;
    for (const LookupPart& part : batch.parts) {
      bytes += part.output_rows() * part.columns() * sizeof(float);
    }
    return bytes;
  }

  void Take(std::function<void()> answer, absl::Time deadline) {
    {
      MutexLock lock(mu_);
      ++taken_;
      last_deadline_ = deadline;
      changed_.NotifyAll();
      if (holding_) {
        held_.push_back(std::move(answer));
        return;
      }
    }
    answer();
  }

  BufferPool pool_;
  SessionGate sessions_;
  std::size_t block_bytes_ = 1000;
  std::function<void(const ReplicaMessage&, const ReplicaDone&)> on_replicated_;

  mutable Mutex mu_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::function<void()>> held_ ABSL_GUARDED_BY(mu_);
  std::size_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t updated_rows_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t finite_updates_ ABSL_GUARDED_BY(mu_) = 0;
  std::int64_t blocks_read_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status last_read_ ABSL_GUARDED_BY(mu_);
  absl::Time last_deadline_ ABSL_GUARDED_BY(mu_);
  absl::Status install_status_ ABSL_GUARDED_BY(mu_);
  NodeId self_ ABSL_GUARDED_BY(mu_){};
  PlanPtr plan_ ABSL_GUARDED_BY(mu_) = std::make_shared<const Plan>();
  ClosedSessions closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
