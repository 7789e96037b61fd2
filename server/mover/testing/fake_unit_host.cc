#include "server/mover/testing/fake_unit_host.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace embla::testing {
namespace {

// Three words per update: session, seq, times.
Buffer Encode(const ChunkRows& rows) {
  Buffer block = Buffer::Allocate(rows.size() * 3 * sizeof(std::uint64_t));
  std::uint64_t* out = block.MutableAs<std::uint64_t>().data();
  for (const auto& [name, times] : rows) {
    *out++ = ToInt(name.first);
    *out++ = ToInt(name.second);
    *out++ = times;
  }
  return block;
}

ChunkRows Decode(const SharedBuffer& block) {
  ChunkRows rows;
  const auto words = block.As<std::uint64_t>();
  for (std::size_t i = 0; i + 2 < words.size(); i += 3) {
    rows[{SessionId{words[i]}, UpdateSeq{words[i + 1]}}] = words[i + 2];
  }
  return rows;
}

}  // namespace

void FakeUnitHost::Place(const UnitId& unit) {
  units_[unit].is_here = true;
  units_[unit].rows.resize(chunks_);
}

void FakeUnitHost::Update(const UnitId& unit, const UnitUpdate& update,
                          std::function<void(PartStatus)> answered) {
  Queue([this, unit, update, answered] { answered(Decide(unit, update)); });
}

void FakeUnitHost::CancelFold(TableId table) {
  for (auto& [id, unit] : units_) {
    if (id.table == table) unit.noted = PlanVersion{};
  }
}

void FakeUnitHost::NoteForFold(const UnitId& id, const UnitWindows&, PlanVersion plan) {
  Unit& unit = units_.at(id);
  if (unit.is_here && unit.gate != nullptr) unit.noted = plan;
}

void FakeUnitHost::JoinRest(const UnitId& id, const UnitWindows& windows, PlanVersion) {
  Unit& unit = units_.at(id);
  unit.windows.Include(windows);
  unit.gate = nullptr;
  ++joined;
  unit.noted = PlanVersion{};
}

PartStatus FakeUnitHost::Decide(const UnitId& id, const UnitUpdate& update) {
  Unit& unit = units_[id];
  if (unit.gate != nullptr) {
    const PartStatus status = unit.gate->Check(update).status;
    if (status != PartStatus::kApplied) return status;
    if (!unit.is_here) return PartStatus::kFrozen;  // Its rows are being installed.
  } else {
    if (!unit.is_here) return PartStatus::kMoved;
    switch (unit.windows.Classify(update.session, update.seq, update.first_incomplete)) {
      case UnitWindows::Verdict::kApplied:
        return PartStatus::kDuplicate;
      case UnitWindows::Verdict::kTooNew:
        return PartStatus::kSeqTooNew;
      case UnitWindows::Verdict::kNew:
        break;
    }
  }
  if (!log_update(id, update, unit.gate != nullptr).ok()) return PartStatus::kFrozen;
  if (unit.gate != nullptr) {
    unit.gate->Apply(update);
  } else {
    unit.windows.Record(update.session, update.seq, update.first_incomplete);
  }
  WriteRows(unit, update);
  return PartStatus::kApplied;
}

void FakeUnitHost::WriteRows(Unit& unit, const UnitUpdate& update) {
  for (const std::uint32_t chunk : update.chunks) ++unit.rows[chunk][{update.session, update.seq}];
}

void FakeUnitHost::Replay(const UnitId& id, const UnitUpdate& update, bool is_gated) {
  Unit& unit = units_[id];
  EMBLA_CHECK(unit.is_here);
  if (!is_gated) unit.windows.Record(update.session, update.seq, update.first_incomplete);
  WriteRows(unit, update);
}

FakeUnitHost::Image FakeUnitHost::TakeImage() const {
  Image image;
  for (const auto& [id, unit] : units_) {
    image[id] = {unit.is_here, unit.device, unit.rows, unit.windows, unit.staged};
  }
  return image;
}

void FakeUnitHost::Begin(const Image& image) {
  for (const auto& [id, from] : image) {
    Unit& unit = units_[id];
    unit.is_here = from.is_here;
    unit.device = from.device;
    unit.rows = from.rows;
    unit.windows = from.windows;
  }
}

bool FakeUnitHost::RunOne() {
  if (!turns_.empty() && (device_.empty() || Happens(0.5))) {  // The next one's turn has come.
    device_.push_back(std::move(turns_.front()));
    turns_.pop_front();
  }
  std::deque<Task>& from = MayRunLate() && (device_.empty() || Happens(0.5)) ? late_ : device_;
  if (from.empty()) return false;
  const std::function<void()> work = std::move(from.front().work);
  from.pop_front();
  work();
  return true;
}

// Everything that was queued before it has run.
bool FakeUnitHost::MayRunLate() const {
  if (late_.empty()) return false;
  const auto is_earlier = [this](const Task& task) { return task.number < late_.front().number; };
  return std::ranges::none_of(device_, is_earlier) && std::ranges::none_of(turns_, is_earlier);
}

bool FakeUnitHost::TakesUpdates(const UnitId& id) const {
  const Unit& unit = units_[id];
  if (unit.gate == nullptr) return unit.is_here;
  const UnitUpdate probe{.session = SessionId{1u << 30}, .seq = UpdateSeq{1}, .chunks = {0}};
  return unit.gate->Check(probe).status == PartStatus::kApplied;
}

absl::StatusOr<UnitShape> FakeUnitHost::ShapeOf(const UnitId&) const {
  return UnitShape{.row_begin = 0,
                   .row_end = 10 * std::int64_t{chunks_},
                   .column_begin = 0,
                   .column_end = 4,
                   .chunk_rows = 10};
}

void FakeUnitHost::RunInOrder(TableId, std::function<void()> work) { Queue(std::move(work)); }

void FakeUnitHost::SetGate(const UnitId& unit, std::shared_ptr<UnitGate> gate) {
  if (gate == nullptr) EMBLA_CHECK(!units_[unit].is_here);
  units_[unit].gate = std::move(gate);
}

UnitWindows FakeUnitHost::WindowsOf(const UnitId& unit) const { return units_[unit].windows; }

void FakeUnitHost::ReadChunk(const UnitId& unit, std::uint32_t chunk, ChunkTurn turn,
                             std::function<void(absl::StatusOr<Buffer>)> done) {
  QueueChunk(turn, [this, unit, chunk, done] {
    if (!units_[unit].is_here) return done(absl::NotFoundError("the unit has been trimmed"));
    done(Encode(units_[unit].rows[chunk]));
  });
}

void FakeUnitHost::Trim(const UnitId& unit, HostDone done) {
  Queue([this, unit, done] {
    EMBLA_CHECK(units_[unit].is_here);
    units_[unit].is_here = false;
    units_[unit].rows.clear();
    done(absl::OkStatus());
  });
}

void FakeUnitHost::Reserve(const UnitId& id, std::uint32_t device, const RowRun&, HostDone done) {
  Queue([this, id, device, done] {
    if (Happens(faults.refuse_reserve)) return done(absl::ResourceExhaustedError("no room"));
    Unit& unit = units_[id];
    if (unit.is_here) {
      if (device != unit.device) unit.room = device;
    } else if (!unit.staged.has_value()) {
      unit.staged.emplace(chunks_);
      unit.device = device;
    }
    done(absl::OkStatus());
  });
}

void FakeUnitHost::Stage(const UnitId& unit, std::uint32_t chunk, SharedBuffer block,
                         ChunkTurn turn, HostDone done) {
  QueueChunk(turn, [this, unit, chunk, rows = Decode(block), done] {
    EMBLA_CHECK(units_[unit].staged.has_value());
    if (Happens(faults.fail_stage)) return done(absl::DataLossError("checksum"));
    (*units_[unit].staged)[chunk] = rows;
    done(absl::OkStatus());
  });
}

void FakeUnitHost::Reset(const UnitId& unit, HostDone done) {
  Queue([this, unit, done] {
    EMBLA_CHECK(units_[unit].staged.has_value());
    for (auto& rows : *units_[unit].staged) rows = {};
    done(absl::OkStatus());
  });
}

void FakeUnitHost::Install(const UnitId& id, std::shared_ptr<UnitGate> gate, HostDone done) {
  Queue([this, id, gate, done] {
    Unit& unit = units_[id];
    EMBLA_CHECK(unit.staged.has_value() && !unit.is_here);
    unit.rows = *std::move(unit.staged);
    unit.staged.reset();
    unit.is_here = true;
    unit.gate = gate;
    done(absl::OkStatus());
  });
}

void FakeUnitHost::Discard(const UnitId& unit, HostDone done) {
  Queue([this, unit, done] {
    units_[unit].staged.reset();
    units_[unit].room.reset();
    done(absl::OkStatus());
  });
}

void FakeUnitHost::Relocate(const UnitId& id, HostDone done) {
  Queue([this, id, done] {
    Unit& unit = units_[id];
    EMBLA_CHECK(unit.is_here);
    if (Happens(faults.fail_relocate)) return done(absl::ResourceExhaustedError("no memory"));
    if (unit.room.has_value()) unit.device = *unit.room;
    unit.room.reset();
    done(absl::OkStatus());
  });
}

}  // namespace embla::testing
