#include "server/shard/sweep_task.h"

#include <limits>
#include <numeric>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

// A sweep of what was touched before it takes everything: no update states such a step.
constexpr std::uint64_t kAllSteps = std::numeric_limits<std::uint64_t>::max();

RowIntervals IntervalsOf(const std::vector<RowInterval>& rows) {
  RowIntervals intervals;
  for (const RowInterval& interval : rows) intervals.Insert(interval);
  return intervals;
}

}  // namespace

SweepTask::SweepTask(const NodeContext& node, const NodeTable& table,
                     const ShardNode::SweepQuery& query, absl::Time deadline, SweepDone done)
    : DecisionTask(node, deadline),
      shard_(table.shard()),
      durability_(table.spec.durability),
      sweep_(query.sweep),
      wanted_(IntervalsOf(query.rows)),
      evicted_(node.devices.size()),
      done_(std::move(done)) {
  devices_ = shard_->devices();
  // The agreement is a collective of all devices; a record must not overtake what they run.
  if (devices_.size() > 1 || node_.journal != nullptr) {
    devices_ = DeviceSet::First(static_cast<std::uint32_t>(node_.devices.size()));
  }
}

void SweepTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  const bool has_rows = shard_->devices().Has(device);
  if (shard_->lead_device() == device) chosen_ = ChooseBuckets();
  // A record of what cannot be done would be done at the next start.
  const absl::Status ready = has_rows ? ReadyOn(device) : absl::OkStatus();
  if (!Agree(device, ready) || !WriteDown(device)) return;
  if (has_rows) SetError(device, SweepOn(device));
  const bool takes_all = sweep_.rule == ZchSweep::Rule::kIdle && sweep_.before_step == kAllSteps;
  if (takes_all && shard_->lead_device() == device) shard_->step_bound().Reset();
}

absl::Status SweepTask::ReadyOn(std::uint32_t device) {
  for (OwnSlice& own : shard_->slices(device)) {
    if (own.ids != nullptr) EMBLA_RETURN_IF_ERROR(own.ids->ReserveSweep());
  }
  return this->device(device).health();
}

// All devices have done what is before the sweep, and none begins what is behind it.
bool SweepTask::WriteDown(std::uint32_t device) {
  if (node_.journal == nullptr || chosen_.empty()) return true;
  absl::Status written;
  if (device == devices_.lowest()) {
    const auto rows = chosen_.intervals();
    written = AppendToJournal(DecidedSweep{shard_->id(), sweep_, {rows.begin(), rows.end()}},
                              node_.journal->LevelOf(durability_));
  }
  return Agree(device, written);
}

RowIntervals SweepTask::ChooseBuckets() {
  RowIntervals chosen;
  for (const TableUnits::Cut& cut : shard_->units().cuts()) {  // One: the columns are never cut.
    chosen = wanted_.CommonWith(cut.present);
    for (const TableUnits::Cut::Gated& gated : cut.gates) {
      if (gated.gate->IsAtRest()) continue;
      chosen.Erase({gated.shape.row_begin, gated.shape.row_end});
    }
  }
  return chosen;
}

absl::Status SweepTask::SweepOn(std::uint32_t device) {
  for (OwnSlice& own : shard_->slices(device)) {
    if (own.ids == nullptr) continue;  // All of its buckets have left.
    absl::StatusOr<std::size_t> evicted =
        own.ids->Sweep(sweep_, chosen_.CommonWith(own.present), *own.store);
    if (!evicted.ok()) return Annotate(evicted.status(), "table " + shard_->name());
    evicted_[device] += *evicted;
  }
  return absl::OkStatus();
}

void SweepTask::Finish() {
  if (const absl::Status status = Outcome(); !status.ok()) return done_(status);
  SweepResult result;
  result.evicted = std::accumulate(evicted_.begin(), evicted_.end(), std::size_t{0});
  result.swept.assign(chosen_.intervals().begin(), chosen_.intervals().end());
  AnswerWhenWritten(std::move(done_), std::move(result));
}

}  // namespace embla
