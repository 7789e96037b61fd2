#include "server/shard/table_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/rows/stale_plan.h"
#include "server/migration/step_session.h"
#include "server/shard/node_tables.h"
#include "server/shard/refused_units.h"

namespace embla {
namespace {

// About the time that a unit's hand-over takes.
constexpr std::uint32_t kFrozenRetryAfterMs = 5;

std::uint32_t ColumnGranule(const TableSpec& spec, ColumnRange columns) {
  return columns.begin / spec.column_granule_width;
}

// Row granules in ascending order, as runs.
class RunCollector {
 public:
  explicit RunCollector(std::uint32_t column_granule) : column_granule_(column_granule) {}
  void Add(std::uint32_t granule) {
    if (begin_ != end_ && granule == end_) {
      ++end_;
      return;
    }
    Flush();
    begin_ = granule;
    end_ = granule + 1;
  }
  UnitSet Take() {
    Flush();
    return std::move(units_);
  }

 private:
  void Flush() {
    if (begin_ != end_) units_.Include(UnitSet({column_granule_, begin_, end_}));
  }

  const std::uint32_t column_granule_;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
  UnitSet units_;
};

void AddRefused(const UnitSet& units, const RefusedClaim& like, const NodeTables& tables,
                const TableSpec& spec, UpdateResult& result) {
  for (const UnitSet::Run& run : units.runs()) {
    RefusedClaim& refused = result.refused_claims.emplace_back(like);
    refused.units = run;
    const std::uint32_t column = spec.ColumnGranuleBegin(run.column_granule);
    refused.plan_version =
        PlanThatMoved(tables, spec.id, {column, column + 1},
                      {spec.RowGranuleBegin(run.begin),
                       spec.RowGranuleBegin(std::min(run.end, spec.row_granules))});
  }
}

}  // namespace

TableSteps::TableSteps(const TableSpec& spec, const Clock& clock, Metrics* metrics)
    : spec_(spec),
      updates_(spec),
      clock_(clock),
      metrics_(metrics, spec.name),
      steps_({.steps_ahead_max = spec.sync->steps_ahead_max}),
      progress_at_(clock.Now()) {}

void TableSteps::Send(Replies replies) {
  for (Reply& reply : replies) reply.done(std::move(reply.result));
}

void TableSteps::Include(std::vector<SyncSteps::Answer> answers, const NodeTables& tables,
                         Replies& replies) {
  for (SyncSteps::Answer& answer : answers) {
    const auto held = held_.find(answer.ticket);
    Reply& reply = replies.emplace_back(std::move(held->second.done), UpdateResult{});
    if (answer.status.ok()) metrics_.wait.Observe(clock_.Now() - held->second.since);
    held_.erase(held);
    if (!answer.status.ok()) {
      reply.result = absl::Status(
          answer.status.code(), absl::StrCat("table ", spec_.name, ": ", answer.status.message()));
      continue;
    }
    reply.result->plan_version = tables.plan->version();
    const auto refuse = [&](const UnitSet& units, const RefusedClaim& like) {
      AddRefused(units, like, tables, spec_, *reply.result);
    };
    refuse(answer.frozen,
           {.reason = RefusedClaim::Reason::kFrozen, .retry_after_ms = kFrozenRetryAfterMs});
    UnitSet moved = answer.moved;
    for (const auto& [place, units] : elsewhere_) {
      refuse(moved.And(units), {.reason = RefusedClaim::Reason::kMoved,
                                .owner = place.first,
                                .epoch = ToInt(place.second)});
      moved = moved.Minus(units);
    }
    refuse(moved, {.reason = RefusedClaim::Reason::kMoved});
    refuse(answer.again, {.reason = RefusedClaim::Reason::kAgain});
  }
  CountWaiting();
}

void TableSteps::CountWaiting() const {
  metrics_.waiting.Set(static_cast<double>(held_.size()));
  metrics_.waiting_bytes.Set(static_cast<double>(steps_.bytes()));
}

TableSteps::Here TableSteps::Look(TableShard& shard, const TableSpec& spec) {
  Here here;
  TableUnits& units = shard.units();
  units.FindRest();
  for (const TableUnits::Cut& cut : units.cuts()) {
    here.cuts.push_back(cut.columns);
    const std::uint32_t column_granule = ColumnGranule(spec, cut.columns);
    RunCollector rest(column_granule);
    for (std::uint32_t granule = 0; granule < cut.is_rest.size(); ++granule) {
      if (cut.is_rest[granule] != 0) rest.Add(granule);
    }
    here.rest.Include(rest.Take());
    std::map<std::uint32_t, UnitStepping> gated;
    for (const TableUnits::Cut::Gated& unit : cut.gates) {
      const UnitStepping stepping = unit.gate->Stepping();
      if (!stepping.is_here) {
        const PartAnswer answer = unit.gate->CheckLookup();
        here.elsewhere[{answer.owner, answer.epoch}].Include(
            UnitSet({column_granule, unit.row_granule, unit.row_granule + 1}));
      } else if (cut.present.Contains(unit.shape.row_begin)) {
        gated.emplace(unit.row_granule, stepping);
      }
    }
    RunCollector frozen(column_granule);
    std::map<std::uint64_t, RunCollector> by_step;
    for (const auto& [granule, stepping] : gated) {
      by_step.try_emplace(stepping.next_step, column_granule).first->second.Add(granule);
      if (stepping.is_frozen) frozen.Add(granule);
    }
    here.frozen.Include(frozen.Take());
    for (auto& [step, collected] : by_step) here.by_step[step].Include(collected.Take());
  }
  if (!here.rest.empty()) {
    here.by_step[NextStep(shard.rest().FloorOf(kStepSession))].Include(here.rest);
  }
  return here;
}

void TableSteps::LookLocked(TableShard* shard, const NodeTables& tables, Replies& replies) {
  const std::uint64_t version = shard == nullptr ? 0 : shard->units().version();
  if (version == seen_version_) return;
  Here here = shard == nullptr ? Here() : Look(*shard, spec_);
  // Reading the units may make what is known of them.
  seen_version_ = shard == nullptr ? 0 : shard->units().version();
  rest_ = here.rest;
  cuts_ = std::move(here.cuts);
  elsewhere_ = std::move(here.elsewhere);
  // A unit that makes another step than it did here has been elsewhere meanwhile.
  UnitSet stay;
  for (const auto& [step, units] : here.by_step) {
    const auto known = steps_.units_by_step().find(steps_.plan().NextMade(step));
    if (known != steps_.units_by_step().end()) stay.Include(known->second.And(units));
  }
  const UnitSet gone = steps_.units().Minus(stay);
  const UnitSet freeze = gone.Minus(steps_.frozen());
  UnitSet frozen = here.frozen.And(stay).Minus(steps_.frozen());
  frozen.Include(freeze);
  if (!frozen.empty()) Include(steps_.Freeze(frozen), tables, replies);
  if (!gone.empty()) steps_.Remove(gone);
  const UnitSet thaw = steps_.frozen().Minus(here.frozen);
  if (!thaw.empty()) {
    steps_.Unfreeze(thaw);
    progress_at_ = clock_.Now();
  }
  for (const auto& [step, units] : here.by_step) {
    const UnitSet come = units.Minus(stay);
    if (come.empty()) continue;
    steps_.Add(come, step);
    static_cast<void>(steps_.Freeze(come.And(here.frozen)));  // Nothing waits for them.
  }
}

TableSteps::Replies TableSteps::LookAt(TableShard* shard, const NodeTables& tables) {
  Replies replies;
  const MutexLock lock(mu_);
  LookLocked(shard, tables, replies);
  return replies;
}

// Beside what SyncSteps knows nothing of: that contributions of a step make one update.
absl::Status TableSteps::Check(const UpdateBatch& batch) const {
  const StepClaim& claim = *batch.claim;
  if (claim.units.Meets(rest_) && !claim.units.Covers(rest_)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", spec_.name, ": the claim has some of the units that never moved, not all of them",
        ToAbsl(kRefreshThePlan)));
  }
  for (const SyncSteps::Waiting& waiting : steps_.waiting()) {
    if (waiting.contribution.step != batch.step) continue;
    const UpdateBatch& other = held_.at(waiting.ticket).batch;
    if (other.wire_dtype == batch.wire_dtype) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", spec_.name, ": rank ", ToInt(claim.rank), " has another wire_dtype in step ",
        batch.step, " than rank ", ToInt(waiting.contribution.rank)));
  }
  return updates_.CheckClaimed(batch, cuts_);
}

absl::StatusOr<UnitSet> TableSteps::AppliedOf(TableShard& shard, const UpdateBatch& batch) const {
  UnitSet applied;
  if (batch.claim->units.Meets(rest_)) {
    EMBLA_ASSIGN_OR_RETURN(const bool is_applied, shard.rest().IsApplied(batch.session, batch.seq,
                                                                         batch.first_incomplete));
    if (is_applied) applied.Include(rest_);
  }
  UnitUpdate update;
  update.session = batch.session;
  update.seq = batch.seq;
  update.first_incomplete = batch.first_incomplete;
  for (const TableUnits::Cut& cut : shard.units().cuts()) {
    const std::uint32_t column_granule = ColumnGranule(spec_, cut.columns);
    for (const TableUnits::Cut::Gated& unit : cut.gates) {
      if (!batch.claim->units.Has(column_granule, unit.row_granule)) continue;
      const PartStatus status = unit.gate->Check(update).status;
      if (status == PartStatus::kSeqTooNew) {
        return absl::ResourceExhaustedError(
            absl::StrCat("table ", spec_.name, ": too many updates of session ",
                         ToInt(batch.session), " are in flight, wait for some"));
      }
      if (status != PartStatus::kDuplicate) continue;
      applied.Include(UnitSet({column_granule, unit.row_granule, unit.row_granule + 1}));
    }
  }
  return applied;
}

TableSteps::Replies TableSteps::Take(TableShard& shard, UpdateBatch batch, const NodeTables& tables,
                                     UpdateDone done) {
  Replies replies;
  const StepClaim& claim = *batch.claim;
  const MutexLock lock(mu_);
  const auto refuse = [&](absl::Status status) {
    replies.push_back({std::move(done), std::move(status)});
    return std::move(replies);
  };
  if (!stopped_.ok()) return refuse(stopped_);
  LookLocked(&shard, tables, replies);
  if (absl::Status status = Check(batch); !status.ok()) return refuse(status);
  const absl::StatusOr<UnitSet> applied = AppliedOf(shard, batch);
  if (!applied.ok()) return refuse(applied.status());
  Contribution contribution{.session = batch.session,
                            .seq = batch.seq,
                            .step = batch.step,
                            .rank = claim.rank,
                            .resumes = claim.resumes,
                            .plan_version = batch.plan_version,
                            .learning_rate = {},
                            .bytes = batch.memory.size(),
                            .claim = claim.units};
  if (!batch.parts.empty()) contribution.learning_rate = batch.parts.front().learning_rate;
  const absl::StatusOr<SyncSteps::Offer> offer = steps_.Decide(contribution, *applied);
  if (!offer.ok()) {
    return refuse(absl::Status(offer.status().code(),
                               absl::StrCat("table ", spec_.name, ": ", offer.status().message())));
  }
  const SyncSteps::Ticket ticket = ++last_ticket_;
  held_.emplace(ticket, Held{std::move(batch), std::move(done), clock_.Now()});
  const std::optional<SyncSteps::Answer> answer = steps_.Take(ticket, contribution, *offer);
  CountWaiting();
  if (!answer.has_value()) return replies;
  const bool is_duplicate = !offer->refuses();
  Include({*answer}, tables, replies);
  if (is_duplicate) replies.back().result->duplicate = true;
  return replies;
}

TableSteps::Replies TableSteps::Follow(const StepPlan& steps, const NodeTables& tables) {
  Replies replies;
  const MutexLock lock(mu_);
  const PlanVersion before = steps_.plan().version;
  Include(steps_.Follow(steps), tables, replies);
  if (steps_.plan().version != before) progress_at_ = clock_.Now();
  return replies;
}

TableSteps::Replies TableSteps::Drop(const SessionSet& sessions, const NodeTables& tables) {
  Replies replies;
  const MutexLock lock(mu_);
  std::vector<SessionId> dropped;
  for (const SyncSteps::Waiting& waiting : steps_.waiting()) {
    if (sessions.Has(waiting.contribution.session)) dropped.push_back(waiting.contribution.session);
  }
  for (const SessionId session : dropped) Include(steps_.Drop(session), tables, replies);
  return replies;
}

TableSteps::Replies TableSteps::Stop(const absl::Status& why) {
  Replies replies;
  const MutexLock lock(mu_);
  stopped_ = why;
  std::vector<SessionId> waiting;
  for (const SyncSteps::Waiting& one : steps_.waiting()) {
    waiting.push_back(one.contribution.session);
  }
  for (const SessionId session : waiting) static_cast<void>(steps_.Drop(session));
  for (auto& [ticket, held] : held_) replies.push_back({std::move(held.done), why});
  held_.clear();
  CountWaiting();
  return replies;
}

TableSteps::StepPtr TableSteps::Next() {
  const MutexLock lock(mu_);
  // Steps that nobody waits for can wait, too; a node that repeats its journal makes none of its
  // own.
  if (is_on_its_way_ || held_.empty()) return nullptr;
  std::optional<SyncSteps::ReadyStep> ready = steps_.Ready();
  if (!ready.has_value()) return nullptr;
  is_on_its_way_ = true;
  UpdateBatch batch = Join(*ready);
  return std::make_shared<const Step>(Step{*std::move(ready), std::move(batch)});
}

UpdateBatch TableSteps::Join(const SyncSteps::ReadyStep& ready) const {
  std::vector<StepPart> parts;
  for (const SyncSteps::Part& part : ready.parts) {
    parts.push_back({&held_.at(part.ticket).batch, part.units});
  }
  return updates_.Join(ready.step, ready.units, parts, cuts_);
}

bool TableSteps::IsStill(const Step& step) const {
  const MutexLock lock(mu_);
  const std::optional<SyncSteps::ReadyStep> ready = steps_.Ready();
  return ready.has_value() && *ready == step.ready;
}

TableSteps::Replies TableSteps::Commit(const Step& step, const NodeTables& tables) {
  Replies replies;
  const MutexLock lock(mu_);
  Include(steps_.Commit(step.ready), tables, replies);
  metrics_.steps.Add();
  progress_at_ = clock_.Now();
  return replies;
}

void TableSteps::Made() {
  const MutexLock lock(mu_);
  is_on_its_way_ = false;
}

TableSteps::Replies TableSteps::NotMade(const Step& step, const absl::Status& why,
                                        const NodeTables& tables) {
  Replies replies;
  const MutexLock lock(mu_);
  is_on_its_way_ = false;
  if (absl::IsAborted(why)) return replies;
  Include(steps_.Withdraw(step.ready, why), tables, replies);
  return replies;
}

void TableSteps::NoteMade(std::uint64_t step) {
  const MutexLock lock(mu_);
  steps_.NoteMade(step);
}

std::uint64_t TableSteps::first_unmade() const {
  const MutexLock lock(mu_);
  return steps_.first_unmade();
}

StepReport TableSteps::Report() const {
  const MutexLock lock(mu_);
  StepReport report{
      .table = spec_.id, .change = steps_.plan().changes, .first_unmade = steps_.first_unmade()};
  if (steps_.plan().open.has_value()) return report;
  const std::optional<SyncSteps::Lack> lack = steps_.Lacking();
  if (!lack.has_value()) return report;
  absl::Time since = absl::InfiniteFuture();
  for (const auto& [ticket, held] : held_) since = std::min(since, held.since);
  since = std::max(since, progress_at_);
  if (clock_.Now() - since < absl::Milliseconds(spec_.sync->step_timeout_ms)) return report;
  report.step = lack->step;
  report.lacks = lack->ranks;
  return report;
}

}  // namespace embla
