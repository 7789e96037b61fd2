#include "server/shard/unit_relocation.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "server/table/unit_io.h"

namespace embla {
namespace {

struct Place {
  std::uint32_t device = 0;
  OwnSlice* slice = nullptr;  // A slice of the relocation's copy; touched on the device only.
};

// One copy of the table.
struct Way {
  std::shared_ptr<TableShard> table;
  Place from;
  Place to;
};

// Goes from task to task.
struct Relocation {
  DeviceExecutors* executors = nullptr;  // Not owned; outlives the tasks.
  std::vector<Way> ways;                 // By replica group.
  UnitShape shape;
  HostDone done;
  std::uint32_t chunk = 0;  // The next.

  RowInterval rows() const { return {shape.row_begin, shape.row_end}; }
};

// One chunk of all copies: the sources keep their rows until all targets have them.
class ChunkTask final : public DeviceTask {
 public:
  explicit ChunkTask(Relocation relocation)
      : relocation_(std::move(relocation)),
        rows_(RowsOfChunk(relocation_.shape, relocation_.chunk)),
        given_(relocation_.ways.size()) {}

  static void Submit(Relocation relocation) {
    DeviceExecutors& executors = *relocation.executors;
    DeviceSet devices;
    for (const Way& way : relocation.ways) {
      devices |= DeviceSet::Of(way.from.device) | DeviceSet::Of(way.to.device);
    }
    executors.SubmitFollowUp(std::make_unique<ChunkTask>(std::move(relocation)), devices);
  }

  void Run(std::uint32_t device) override {
    for (std::size_t copy = 0; copy < relocation_.ways.size(); ++copy) {
      const Way& way = relocation_.ways[copy];
      if (device == way.from.device) Give(way, copy);
      if (device == way.to.device) Take(way, copy);
      if (device == way.from.device || device == way.to.device) way.table->CountStorage(device);
    }
  }

  void Finish() override {
    const absl::Status status = AwaitTaken();
    if (!status.ok() || ++relocation_.chunk == relocation_.shape.chunks()) {
      return relocation_.done(status);
    }
    Submit(std::move(relocation_));
  }

 private:
  void Give(const Way& way, std::size_t copy) {
    OwnSlice& own = *way.from.slice;
    PutGiven(copy, EncodeChunk(*way.table, own, relocation_.shape, relocation_.chunk,
                               /*pool=*/nullptr));
    if (!AwaitTaken().ok()) return;
    own.present.Erase(rows_);
    MatchBucket(own, rows_);
    own.ReleaseIfEmpty();
  }

  void Take(const Way& way, std::size_t copy) {
    OwnSlice& own = *way.to.slice;
    PutTaken(Write(AwaitGiven(copy), *way.table, own));
    if (!AwaitTaken().ok()) return;
    own.staged.Erase(rows_);
    own.present.Insert(rows_);
    MatchBucket(own, rows_);
  }

  absl::Status Write(absl::StatusOr<Buffer> given, TableShard& table, OwnSlice& own) const {
    EMBLA_ASSIGN_OR_RETURN(const Buffer bytes, std::move(given));
    EMBLA_ASSIGN_OR_RETURN(const UnitChunk chunk,
                           DecodeChunk(bytes.bytes(), table, relocation_.shape, relocation_.chunk));
    return WriteChunk(table, own, relocation_.shape, chunk);
  }

  void PutGiven(std::size_t copy, absl::StatusOr<Buffer> bytes) {
    MutexLock lock(mu_);
    given_[copy] = std::move(bytes);
    changed_.NotifyAll();
  }
  absl::StatusOr<Buffer> AwaitGiven(std::size_t copy) {
    MutexLock lock(mu_);
    while (!given_[copy].has_value()) changed_.Wait(mu_);
    return *std::move(given_[copy]);
  }
  void PutTaken(const absl::Status& status) {
    MutexLock lock(mu_);
    error_.Update(status);
    ++taken_;
    changed_.NotifyAll();
  }
  // Until all copies are written, or one cannot be: then none has changed devices.
  absl::Status AwaitTaken() {
    MutexLock lock(mu_);
    while (taken_ < relocation_.ways.size()) changed_.Wait(mu_);
    return error_;
  }

  Relocation relocation_;
  const RowInterval rows_;

  Mutex mu_;
  CondVar changed_;
  std::vector<std::optional<absl::StatusOr<Buffer>>> given_ ABSL_GUARDED_BY(mu_);
  std::size_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

// Finds where the rows are and where they go.
class FindPlacesTask final : public DeviceTask {
 public:
  explicit FindPlacesTask(Relocation relocation)
      : relocation_(std::move(relocation)),
        givers_(relocation_.executors->devices(), nullptr),
        takers_(givers_),
        next_chunks_(givers_.size(), 0) {}

  void Run(std::uint32_t device) override {
    const RowInterval rows = relocation_.rows();
    const UnitShape& shape = relocation_.shape;
    for (const Way& way : relocation_.ways) {
      if (!way.table->devices().Has(device)) continue;
      for (OwnSlice& own : way.table->slices(device)) {
        if (own.store == nullptr || !own.Covers({shape.column_begin, shape.column_end}, rows)) {
          continue;
        }
        if (own.staged.Intersects(rows)) {
          takers_[device] = &own;
        } else if (own.present.Intersects(rows)) {
          givers_[device] = &own;
          next_chunks_[device] = FirstChunkOn(own);
        }
      }
    }
  }

  void Finish() override {
    for (Way& way : relocation_.ways) {
      way.from = PlaceAmong(givers_, way.table->devices());
      way.to = PlaceAmong(takers_, way.table->devices());
    }
    const Way& way = relocation_.ways.front();  // Every copy has the same units.
    if (way.to.slice == nullptr) return relocation_.done(absl::OkStatus());
    if (way.from.slice == nullptr || way.from.device == way.to.device) {
      return relocation_.done(absl::FailedPreconditionError(
          absl::StrCat("table ", way.table->name(), " rows [", relocation_.rows().begin, ", ",
                       relocation_.rows().end, ") are not on another device of this node")));
    }
    relocation_.chunk = next_chunks_[way.from.device];
    ChunkTask::Submit(std::move(relocation_));
  }

 private:
  // Chunks change in their order: those before it have changed in an earlier attempt.
  std::uint32_t FirstChunkOn(const OwnSlice& own) const {
    std::uint32_t chunk = 0;
    while (!own.present.ContainsAll(RowsOfChunk(relocation_.shape, chunk))) ++chunk;
    return chunk;
  }

  static Place PlaceAmong(const std::vector<OwnSlice*>& slices, DeviceSet devices) {
    for (std::uint32_t device = 0; device < slices.size(); ++device) {
      if (devices.Has(device) && slices[device] != nullptr) return {device, slices[device]};
    }
    return {};
  }

  Relocation relocation_;
  // By device, written by each for itself.
  std::vector<OwnSlice*> givers_;
  std::vector<OwnSlice*> takers_;
  std::vector<std::uint32_t> next_chunks_;
};

}  // namespace

void RelocateUnit(DeviceExecutors& executors, std::vector<std::shared_ptr<TableShard>> copies,
                  const UnitShape& shape, HostDone done) {
  Relocation relocation{
      .executors = &executors, .ways = {}, .shape = shape, .done = std::move(done)};
  DeviceSet devices;
  for (std::shared_ptr<TableShard>& copy : copies) {
    devices |= copy->devices();
    relocation.ways.push_back({std::move(copy), {}, {}});
  }
  executors.SubmitControl(std::make_unique<FindPlacesTask>(std::move(relocation)), devices);
}

}  // namespace embla
