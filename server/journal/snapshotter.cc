#include "server/journal/snapshotter.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/failpoint.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "server/journal/journal_records.h"
#include "server/table/unit_io.h"

namespace embla {
namespace {

// Windows whose changes may be read by one task: as many rows take a device some microseconds to
// look through.
constexpr int kWindowsJoined = 64;

// Neighbouring windows as one, where NodeImages::Read may be asked for many at once.
std::vector<RowWindow> Joined(const Plan& plan, const std::vector<RowWindow>& windows) {
  std::vector<RowWindow> joined;
  int count = 0;  // In the last one.
  for (const RowWindow& window : windows) {
    const TableSpec& spec = plan.FindTable(window.table)->spec;
    const bool may_join = !spec.zch.has_value() && spec.replica_groups == 1 && !window.is_coming;
    const bool follows = count > 0 && joined.back().table == window.table &&
                         joined.back().columns == window.columns &&
                         joined.back().rows.end == window.rows.begin;
    if (may_join && follows && count < kWindowsJoined) {
      joined.back().rows.end = window.rows.end;
      ++count;
      continue;
    }
    joined.push_back(window);
    count = may_join ? 1 : 0;
  }
  return joined;
}

}  // namespace

// One window that is being read.
class Snapshotter::Reading {
 public:
  using Result = absl::StatusOr<WindowRead>;

  Reading(NodeImages& images, const RowWindow& window, bool changed_only) {
    images.Read(window, changed_only, [state = state_](Result result) {
      const MutexLock lock(state->mu);
      state->result = std::move(result);
      state->changed.NotifyAll();
    });
  }
  Result Wait() {
    const MutexLock lock(state_->mu);
    while (!state_->result.has_value()) state_->changed.Wait(state_->mu);
    return *std::move(state_->result);
  }

 private:
  struct State {
    Mutex mu;
    CondVar changed;
    std::optional<Result> result ABSL_GUARDED_BY(mu);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

Snapshotter::Snapshotter(const SnapshotOptions& options, Node node, std::uint64_t newest,
                         std::uint64_t expected_bytes, Metrics* metrics)
    : options_(options), node_(std::move(node)), newest_(newest), base_bytes_(expected_bytes) {
  if (metrics == nullptr) return;
  taken_ = metrics->MakeCounter(MetricNamed("embla_snapshots_total"), {"taken"});
  waited_ = metrics->MakeCounter(MetricNamed("embla_snapshots_total"), {"waited"});
  failed_ = metrics->MakeCounter(MetricNamed("embla_snapshots_total"), {"failed"});
  bytes_ = metrics->MakeCounter(MetricNamed("embla_snapshot_bytes_total"));
  size_ = metrics->MakeGauge(MetricNamed("embla_snapshot_bytes"));
  journal_kept_ = metrics->MakeGauge(MetricNamed("embla_journal_kept_bytes"));
  seconds_ = metrics->MakeHistogram(MetricNamed("embla_snapshot_seconds"));
  held_ = metrics->MakeHistogram(MetricNamed("embla_snapshot_hold_seconds"));
}

void Snapshotter::Start(WhileLogged while_logged) {
  while_logged_ = std::move(while_logged);
  thread_ = std::thread([this] { Run(); });
}

void Snapshotter::Stop() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Snapshotter::Run() {
  absl::Time not_before = absl::InfinitePast();
  while (true) {
    {
      const MutexLock lock(mu_);
      if (!stopping_) changed_.WaitFor(mu_, options_.look_every);
      if (stopping_) return;
    }
    if (!IsDue() || Clock::Real().Now() < not_before) continue;
    const absl::Status status = TakePaced(while_logged_, /*paced=*/true);
    if (!status.ok()) not_before = Clock::Real().Now() + options_.retry_after;
  }
}

bool Snapshotter::IsDue() const {
  const MutexLock lock(mu_);
  const std::uint64_t kept = node_.journal_bytes() - journal_at_newest_;
  journal_kept_.Set(static_cast<double>(kept));
  const auto share =
      static_cast<std::uint64_t>(options_.journal_share * static_cast<double>(base_bytes_));
  return kept >= std::max(options_.journal_bytes_min, share);
}

absl::Status Snapshotter::Take(const WhileLogged& while_logged) {
  return TakePaced(while_logged, /*paced=*/false);
}

absl::Status Snapshotter::TakePaced(const WhileLogged& while_logged, bool paced) {
  const MutexLock lock(take_mu_);
  const absl::Time begun = Clock::Real().Now();
  const std::uint64_t journal_before = node_.journal_bytes();
  const auto share =
      static_cast<std::uint64_t>(options_.changes_share * static_cast<double>(chain_.base_bytes));
  if (chain_.base == 0 || chain_.change_bytes >= share) {
    // There is no room for the journal behind two snapshots beside two bases.
    if (chain_.base != 0) {
      chain_.position_before = chain_.position;
      EMBLA_RETURN_IF_ERROR(GiveUp());
    }
    chain_.base = 0;
  }
  SnapshotHead head;
  head.record.number = newest_ + 1;
  head.record.base = chain_.base == 0 ? head.record.number : chain_.base;
  const absl::StatusOr<NodeImages::Taken> taken = Begin(while_logged, &head);
  if (!taken.ok()) {
    waited_.Add();
    if (!std::exchange(is_told_, true)) {
      LogInfo("journal", "a snapshot waits: ", taken.status().message());
    }
    return taken.status();
  }
  is_told_ = false;
  const absl::StatusOr<std::uint64_t> bytes = Write(*taken, paced, while_logged, head);
  if (!bytes.ok()) {
    if (absl::IsCancelled(bytes.status())) return bytes.status();
    failed_.Add();
    LogWarning("journal", "a snapshot failed, trying again: ", bytes.status().message());
    return bytes.status();
  }
  CrashPoint("snapshot.whole");
  newest_ = head.record.number;
  const bool is_base = head.record.base == newest_;
  chain_.base = head.record.base;
  chain_.position_before = is_base ? head.record.position : chain_.position;
  chain_.position = head.record.position;
  chain_.change_bytes = is_base ? 0 : chain_.change_bytes + *bytes;
  if (is_base) chain_.base_bytes = *bytes;
  {
    const MutexLock known(mu_);
    base_bytes_ = chain_.base_bytes;
    journal_at_newest_ = journal_before;
  }
  taken_.Add();
  size_.Set(static_cast<double>(chain_.base_bytes + chain_.change_bytes));
  seconds_.Observe(Clock::Real().Now() - begun);
  LogInfo("journal", "snapshot number=", newest_, " base=", chain_.base, " bytes=", *bytes,
          " position=", chain_.position,
          " seconds=", absl::ToDoubleSeconds(Clock::Real().Now() - begun));
  return GiveUp();
}

absl::StatusOr<std::uint64_t> Snapshotter::Write(const NodeImages::Taken& taken, bool paced,
                                                 const WhileLogged& while_logged,
                                                 const SnapshotHead& head) {
  // Rows that are read count as read: without this snapshot, the next one has to have all of them.
  const bool changed_only = std::exchange(chain_.base, 0) != 0;
  auto writer = SnapshotWriter::Begin(node_.directory, node_.segment_bytes_max, head);
  absl::Status status = writer.status();
  CrashPoint("snapshot.begun");
  if (status.ok()) {
    LimitJournal();
    status = Copy(changed_only ? Joined(*head.image.plan, taken.windows) : taken.windows,
                  changed_only, paced, **writer);
    // The journal says of every chunk what its window has: a start that knew less could take an
    // older cut for the unit.
    const bool has_staged = std::ranges::any_of(taken.windows, &RowWindow::is_coming);
    if (status.ok() && has_staged) static_cast<void>(while_logged([](const auto&) {}));
    // A journal that ended before a position in the snapshot could give that number to another
    // record.
    if (status.ok()) {
      constexpr auto kBefore = static_cast<std::uint16_t>(JournalKind::kBefore);
      status = node_.log.WriteControl(kBefore, {}).status();
    }
    if (status.ok()) status = (*writer)->Finish();
    journal_limit_.store(std::numeric_limits<std::uint64_t>::max(), std::memory_order_relaxed);
  }
  if (status.ok()) return (*writer)->bytes();
  static_cast<void>(SnapshotStorage(node_.directory, head.record.number).RemoveAll());
  return status;
}

void Snapshotter::LimitJournal() {
  const MutexLock lock(mu_);
  const auto growth =
      static_cast<std::uint64_t>(options_.growth_limit * static_cast<double>(base_bytes_));
  journal_limit_.store(node_.journal_bytes() + std::max(growth, options_.growth_limit_bytes_min),
                       std::memory_order_relaxed);
}

absl::StatusOr<NodeImages::Taken> Snapshotter::Begin(const WhileLogged& while_logged,
                                                     SnapshotHead* head) {
  absl::StatusOr<NodeImages::Taken> taken =
      absl::UnavailableError("the log, or the devices, do not get on with a unit's move");
  static_cast<void>(while_logged([&](const Mover::LoggedUnits& units) {
    taken = node_.images.Take([&] {
      head->units = units();
      return absl::OkStatus();
    });
  }));
  if (!taken.ok()) return taken;
  held_.Observe(taken->held);
  NodeImage& image = taken->image;
  // Units of tables that were dropped are known until the process ends.
  std::erase_if(head->units, [&](const RestoredUnit& unit) {
    return image.plan->FindTable(unit.unit.table) == nullptr;
  });
  AddStaged(head->units, taken->windows);
  head->record.position = image.position;
  head->record.log_process = node_.log_process;
  head->record.time = image.time;
  head->record.sessions = std::move(image.sessions);
  head->image = std::move(image);
  return taken;
}

void Snapshotter::AddStaged(const std::vector<RestoredUnit>& units,
                            std::vector<RowWindow>& windows) const {
  for (const RestoredUnit& unit : units) {
    const absl::StatusOr<UnitShape> shape = node_.units.ShapeOf(unit.unit);
    if (!unit.durable.import.has_value() || !shape.ok()) continue;
    const ColumnRange columns{shape->column_begin, shape->column_end};
    for (std::uint32_t chunk = 0; chunk < unit.staged.size(); ++chunk) {
      if (unit.staged[chunk] == Lsn{0}) continue;
      windows.push_back({.table = unit.unit.table,
                         .columns = columns,
                         .rows = RowsOfChunk(*shape, chunk),
                         .is_coming = true});
    }
  }
}

// The next rows are read while those before are written: their positions rise.
absl::Status Snapshotter::Copy(std::vector<RowWindow> windows, bool changed_only, bool paced,
                               SnapshotWriter& writer) {
  const absl::Time begun = Clock::Real().Now();
  const double growth_share = changed_only ? options_.changes_growth_share : options_.growth_share;
  std::optional<Reading> next;
  std::uint64_t counted = 0;
  for (std::size_t i = 0; i < windows.size();) {
    const RowWindow window = windows[i];
    if (!next.has_value()) next.emplace(node_.images, window, changed_only);
    EMBLA_ASSIGN_OR_RETURN(WindowRead read, next->Wait());
    next.reset();
    windows[i].rows.begin = read.next_row;
    if (read.next_row == window.rows.end) ++i;
    const double share_done = static_cast<double>(i) / static_cast<double>(windows.size());
    if (!Pace(paced ? writer.bytes() : 0, share_done, growth_share, begun)) {
      return absl::CancelledError("the node stops");
    }
    if (i < windows.size()) next.emplace(node_.images, windows[i], changed_only);
    std::ranges::sort(read.rows, {}, &WindowRows::position);
    for (const WindowRows& on_device : read.rows) {
      held_.Observe(on_device.held);
      CrashPoint("snapshot.rows");
      EMBLA_RETURN_IF_ERROR(writer.Add(window, on_device));
    }
    bytes_.Add(static_cast<double>(writer.bytes() - std::exchange(counted, writer.bytes())));
  }
  return absl::OkStatus();
}

bool Snapshotter::Pace(std::uint64_t done, double share_done, double growth_share,
                       absl::Time begun) {
  const MutexLock lock(mu_);
  if (stopping_ || done == 0) return !stopping_;
  const std::uint64_t journal = node_.journal_bytes() - journal_at_newest_;
  // How far it would have to be for the journal not to grow beyond its share.
  const double growth = growth_share * static_cast<double>(base_bytes_);
  const double due = growth > 0 ? (static_cast<double>(journal) -
                                   options_.journal_share * static_cast<double>(base_bytes_)) /
                                      growth
                                : 1.0;
  if (share_done < due) return true;
  const absl::Time at = begun + absl::Seconds(static_cast<double>(done) /
                                              static_cast<double>(options_.bytes_per_second_min));
  const absl::Duration left = at - Clock::Real().Now();
  if (left > absl::ZeroDuration()) changed_.WaitFor(mu_, std::min(left, options_.look_every));
  return !stopping_;
}

absl::Status Snapshotter::GiveUp() {
  EMBLA_RETURN_IF_ERROR(node_.log.Truncate(LogLsn{chain_.position_before}));
  CrashPoint("snapshot.truncated");
  EMBLA_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers,
                         SnapshotStorage::List(node_.directory));
  for (const std::uint64_t number : numbers) {
    if (number >= chain_.base) continue;
    EMBLA_RETURN_IF_ERROR(SnapshotStorage(node_.directory, number).RemoveAll());
  }
  return absl::OkStatus();
}

}  // namespace embla
