#include "server/shard/unit_relocation.h"

#include <algorithm>
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
  OwnSlice* slice = nullptr;  // Of the relocation's table; touched on the device only.
};

// Goes from task to task.
struct Relocation {
  DeviceExecutors* executors = nullptr;  // Not owned; outlives the tasks.
  std::shared_ptr<TableShard> table;
  UnitShape shape;
  HostDone done;
  Place from;
  Place to;
  std::uint32_t chunk = 0;  // The next.

  RowInterval rows() const { return {shape.row_begin, shape.row_end}; }
};

// One chunk. The source keeps its rows until the target has them.
class ChunkTask final : public DeviceTask {
 public:
  explicit ChunkTask(Relocation relocation)
      : relocation_(std::move(relocation)),
        rows_(RowsOfChunk(relocation_.shape, relocation_.chunk)) {}

  static void Submit(Relocation relocation) {
    DeviceExecutors& executors = *relocation.executors;
    const DeviceSet both =
        DeviceSet::Of(relocation.from.device) | DeviceSet::Of(relocation.to.device);
    executors.SubmitFollowUp(std::make_unique<ChunkTask>(std::move(relocation)), both);
  }

  void Run(std::uint32_t device) override {
    device == relocation_.from.device ? Give() : Take();
    relocation_.table->CountStorage(device);
  }

  void Finish() override {
    const absl::Status status = AwaitTaken();
    if (!status.ok() || ++relocation_.chunk == relocation_.shape.chunks()) {
      return relocation_.done(status);
    }
    Submit(std::move(relocation_));
  }

 private:
  void Give() {
    OwnSlice& own = *relocation_.from.slice;
    PutGiven(EncodeChunk(*relocation_.table, own, relocation_.shape, relocation_.chunk,
                         /*pool=*/nullptr));
    if (!AwaitTaken().ok()) return;
    own.present.Erase(rows_);
    MatchBucket(own, rows_);
    own.ReleaseIfEmpty();
  }

  void Take() {
    OwnSlice& own = *relocation_.to.slice;
    const absl::Status status = Write(AwaitGiven(), own);
    if (status.ok()) {
      own.staged.Erase(rows_);
      own.present.Insert(rows_);
      MatchBucket(own, rows_);
    }
    PutTaken(status);
  }

  absl::Status Write(absl::StatusOr<Buffer> given, OwnSlice& own) {
    EMBLA_ASSIGN_OR_RETURN(const Buffer bytes, std::move(given));
    TableShard& table = *relocation_.table;
    EMBLA_ASSIGN_OR_RETURN(const UnitChunk chunk,
                           DecodeChunk(bytes.bytes(), table, relocation_.shape, relocation_.chunk));
    return WriteChunk(table, own, relocation_.shape, chunk);
  }

  void PutGiven(absl::StatusOr<Buffer> bytes) {
    MutexLock lock(mu_);
    given_ = std::move(bytes);
    changed_.NotifyAll();
  }
  absl::StatusOr<Buffer> AwaitGiven() {
    MutexLock lock(mu_);
    while (!given_.has_value()) changed_.Wait(mu_);
    return *std::move(given_);
  }
  void PutTaken(const absl::Status& status) {
    MutexLock lock(mu_);
    taken_ = status;
    changed_.NotifyAll();
  }
  absl::Status AwaitTaken() {
    MutexLock lock(mu_);
    while (!taken_.has_value()) changed_.Wait(mu_);
    return *taken_;
  }

  Relocation relocation_;
  const RowInterval rows_;

  Mutex mu_;
  CondVar changed_;
  std::optional<absl::StatusOr<Buffer>> given_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> taken_ ABSL_GUARDED_BY(mu_);
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
    for (OwnSlice& own : relocation_.table->slices(device)) {
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

  void Finish() override {
    relocation_.from = PlaceAmong(givers_);
    relocation_.to = PlaceAmong(takers_);
    if (relocation_.to.slice == nullptr) return relocation_.done(absl::OkStatus());
    if (relocation_.from.slice == nullptr || relocation_.from.device == relocation_.to.device) {
      return relocation_.done(absl::FailedPreconditionError(
          absl::StrCat("table ", relocation_.table->name(), " rows [", relocation_.rows().begin,
                       ", ", relocation_.rows().end, ") are not on another device of this node")));
    }
    relocation_.chunk = next_chunks_[relocation_.from.device];
    ChunkTask::Submit(std::move(relocation_));
  }

 private:
  // Chunks change in their order: those before it have changed in an earlier attempt.
  std::uint32_t FirstChunkOn(const OwnSlice& own) const {
    std::uint32_t chunk = 0;
    while (!own.present.ContainsAll(RowsOfChunk(relocation_.shape, chunk))) ++chunk;
    return chunk;
  }

  static Place PlaceAmong(const std::vector<OwnSlice*>& slices) {
    const auto found =
        std::ranges::find_if(slices, [](const OwnSlice* slice) { return slice != nullptr; });
    if (found == slices.end()) return {};
    return {static_cast<std::uint32_t>(found - slices.begin()), *found};
  }

  Relocation relocation_;
  // By device, written by each for itself.
  std::vector<OwnSlice*> givers_;
  std::vector<OwnSlice*> takers_;
  std::vector<std::uint32_t> next_chunks_;
};

}  // namespace

void RelocateUnit(DeviceExecutors& executors, std::shared_ptr<TableShard> table,
                  const UnitShape& shape, HostDone done) {
  const DeviceSet devices = table->devices();
  Relocation relocation{.executors = &executors,
                        .table = std::move(table),
                        .shape = shape,
                        .done = std::move(done),
                        .from = {},
                        .to = {}};
  executors.SubmitControl(std::make_unique<FindPlacesTask>(std::move(relocation)), devices);
}

}  // namespace embla
