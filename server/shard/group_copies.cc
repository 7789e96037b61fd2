#include "server/shard/group_copies.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "kernels/convert.h"
#include "server/collective/host_communicator.h"
#include "server/gpu/kernel_table.h"
#include "server/table/element.h"

namespace embla {
namespace {

// Most sessions whose updates are counted, per group; trainers without a name never close theirs.
constexpr std::size_t kCountedSessionsMax = 4096;

// Whether all peers say yes.
absl::StatusOr<bool> AllOf(bool mine, Communicator& peers) {
  std::int32_t worst = 0;
  EMBLA_RETURN_IF_ERROR(peers.AllReduceMax(mine ? 0 : 1, worst));
  return worst == 0;
}

// One slice on its way through the averaging, a chunk of rows at a time.
class SliceMean {
 public:
  // Chunks have `rows_at_once` rows at most, the same for all copies.
  SliceMean(OwnSlice& own, Communicator& peers, std::size_t rows_at_once)
      : own_(own), peers_(peers), rows_at_once_(rows_at_once) {}
  virtual ~SliceMean() = default;

  absl::Status Run(RowInterval rows) {
    const auto end = static_cast<std::size_t>(rows.end - own_.slice.row_begin);
    absl::Status written;
    for (auto first = static_cast<std::size_t>(rows.begin - own_.slice.row_begin); first < end;
         first += rows_at_once_) {
      const absl::Status mine =
          Read(static_cast<std::uint32_t>(first),
               static_cast<std::uint32_t>(std::min(rows_at_once_, end - first)));
      // All copies' rows must have been read before any is changed.
      EMBLA_ASSIGN_OR_RETURN(const bool all, AllOf(mine.ok(), peers_));
      EMBLA_RETURN_IF_ERROR(mine);
      if (!all) return absl::AbortedError("another copy of the table cannot be read");
      // With an error too: the other copies go on, and wait for this one.
      written.Update(Write());
    }
    return written;
  }

  const kernels::Divergence& divergence() const { return divergence_; }

 protected:
  // Reads the slots [first, first + count), and changes nothing.
  virtual absl::Status Read(std::uint32_t first, std::uint32_t count) = 0;
  // Makes them the mean of all copies.
  virtual absl::Status Write() = 0;

  OwnSlice& own_;
  Communicator& peers_;
  const std::size_t rows_at_once_;
  kernels::Divergence divergence_;
};

// By the kernels of GPUs that read each other's copies.
class GpuMean final : public SliceMean {
 public:
  // `copies` are what all peers' stores show.
  GpuMean(OwnSlice& own, Communicator& peers, std::vector<kernels::StepRows> copies)
      : SliceMean(own, peers, RowsAtOnce(own)), copies_(std::move(copies)) {}

  static std::size_t RowsAtOnce(const OwnSlice& own) {
    const std::uint32_t columns = own.slice.columns();
    const std::size_t row_bytes =
        RowBytes(own.store->dtype(), columns) + own.store->StateFloats(columns) * sizeof(float);
    return std::max<std::size_t>(1, own.store->piece_bytes() / row_bytes);
  }

 private:
  absl::Status Read(std::uint32_t first, std::uint32_t count) override {
    chunk_ = {.copies = copies_, .own = peers_.rank(), .first = first, .count = count};
    EMBLA_ASSIGN_OR_RETURN(const kernels::Divergence found, own_.store->FindMeans(chunk_));
    divergence_.Add(found);
    return absl::OkStatus();
  }
  absl::Status Write() override { return own_.store->TakeMeans(chunk_); }

  const std::vector<kernels::StepRows> copies_;
  RowCopies chunk_;
};

// Through the host's memory: each device gets an equal share of a chunk's rows from all of them
// (AllToAll), makes the means, and hands them to all (AllGather).
class HostMean final : public SliceMean {
 public:
  HostMean(const TableSpec& spec, OwnSlice& own, Communicator& peers)
      : SliceMean(own, peers, RowsAtOnce(own, peers)),
        element_(ElementOf(spec.dtype)),
        row_bytes_(RowBytes(spec.dtype, own.slice.columns())),
        state_floats_(own.store->StateFloats(own.slice.columns())) {
    row_.weights = own.slice.columns();
    row_.counters = StateShapeOf(spec.optimizer).row_counters;
    row_.floats = row_.weights + state_floats_;
  }

 private:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  static std::size_t RowsAtOnce(const OwnSlice& own, const Communicator& peers) {
    const std::uint32_t columns = own.slice.columns();
    const std::size_t floats = columns + own.store->StateFloats(columns);
    return std::max<std::size_t>(peers.size(), kChunkBytes / (floats * sizeof(float)));
  }

  // The chunk's rows as floats, to rows_.
  absl::Status Read(std::uint32_t first, std::uint32_t count) override {
    slots_.resize(count);
    std::iota(slots_.begin(), slots_.end(), first);
    weights_.resize(slots_.size() * row_bytes_);
    state_.resize(slots_.size() * state_floats_);
    rows_.resize(slots_.size() * row_.floats);
    EMBLA_RETURN_IF_ERROR(own_.store->ReadRows(slots_, own_.columns(), {weights_, state_}));
    const std::size_t stride = row_.floats * sizeof(float);
    kernels::Convert({weights_.data(), row_bytes_, element_}, {rows_.data(), stride}, slots_.size(),
                     own_.slice.columns());
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::copy_n(state_.data() + i * state_floats_, state_floats_,
                  rows_.data() + i * row_.floats + row_.weights);
    }
    return absl::OkStatus();
  }

  absl::Status Write() override {
    EMBLA_RETURN_IF_ERROR(Exchange());
    const std::size_t stride = row_.floats * sizeof(float);
    kernels::Convert({rows_.data(), stride}, {weights_.data(), row_bytes_, element_}, slots_.size(),
                     own_.slice.columns());
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::copy_n(rows_.data() + i * row_.floats + row_.weights, state_floats_,
                  state_.data() + i * state_floats_);
    }
    return own_.store->WriteRows(slots_, own_.columns(), {weights_, state_});
  }

  // rows_ becomes the mean of all copies.
  absl::Status Exchange() {
    const std::size_t ranks = peers_.size();
    std::vector<std::size_t> shares(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t rows = slots_.size() * (r + 1) / ranks - slots_.size() * r / ranks;
      shares[r] = rows * row_.floats;
    }
    const std::size_t mine = shares[peers_.rank()];
    const std::vector<std::size_t> from_each(ranks, mine);
    theirs_.resize(mine * ranks);
    mean_.resize(mine);
    EMBLA_RETURN_IF_ERROR(peers_.AllToAll(rows_, shares, theirs_, from_each));
    divergence_.Add(kernels::MeanOfCopies(theirs_, ranks, row_, mean_));
    return peers_.AllGather(mean_, shares, rows_);
  }

  const kernels::Element element_;
  const std::size_t row_bytes_;  // Bytes of the weights, as stored.
  const std::size_t state_floats_;
  kernels::CopyRow row_;

  std::vector<std::uint32_t> slots_;  // The chunk's.
  std::vector<std::byte> weights_;
  std::vector<float> state_;
  std::vector<float> rows_;
  std::vector<float> theirs_;
  std::vector<float> mean_;
};

std::vector<std::unique_ptr<Communicator>> MakePeers(std::uint32_t groups,
                                                     std::uint32_t devices_per_group) {
  std::vector<std::unique_ptr<Communicator>> peers(std::size_t{groups} * devices_per_group);
  for (std::uint32_t position = 0; position < devices_per_group; ++position) {
    std::vector<std::unique_ptr<Communicator>> ranks = MakeHostCommunicators(groups);
    for (std::uint32_t group = 0; group < groups; ++group) {
      peers[group * devices_per_group + position] = std::move(ranks[group]);
    }
  }
  return peers;
}

// Whether the kernels of GPUs that hold copies of a slice can read each other's.
absl::Status CheckGpusMeet(std::span<gpu::Device* const> gpus, std::uint32_t groups) {
  if (groups > kernels::cuda::kCopiesMax) return absl::FailedPreconditionError("too many groups");
  const std::size_t per_group = gpus.size() / groups;
  for (std::size_t reader = 0; reader < gpus.size(); ++reader) {
    for (std::size_t other = reader % per_group; other < gpus.size(); other += per_group) {
      EMBLA_RETURN_IF_ERROR(gpus[reader]->EnableAccessTo(*gpus[other]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

GroupCopies::GroupCopies(const TableSpec& spec, std::uint32_t devices,
                         std::span<gpu::Device* const> gpus, Metrics* metrics)
    : groups_(spec.replica_groups),
      devices_per_group_(devices / spec.replica_groups),
      peers_(MakePeers(groups_, devices_per_group_)),
      shown_(devices),
      metrics_(metrics, spec.name),
      updates_(groups_, 0),
      counted_(groups_) {
  EMBLA_CHECK(devices % groups_ == 0 && (gpus.empty() || gpus.size() == devices));
  if (gpus.empty()) return;
  const absl::Status meet = CheckGpusMeet(gpus, groups_);
  gpus_meet_ = meet.ok();
  if (meet.ok()) return;
  LogWarning("shard", "replica groups are averaged through the host's memory table=", spec.name,
             " reason=", meet.ToString());
}

bool GroupCopies::CountUpdate(std::uint32_t group, const UpdateBatch& update, std::uint32_t every) {
  MutexLock lock(mu_);
  UnitWindows& counted = counted_[group];
  switch (counted.Classify(update.session, update.seq, update.first_incomplete)) {
    case UnitWindows::Verdict::kApplied:
      return false;
    case UnitWindows::Verdict::kTooNew:
      break;
    case UnitWindows::Verdict::kNew:
      counted.Record(update.session, update.seq, update.first_incomplete);
  }
  if (counted.sessions().size() > kCountedSessionsMax) {
    SessionSet oldest;
    oldest.Insert(counted.sessions().front().session);
    counted.Forget(oldest);
  }
  ++updates_[group];
  if (every == 0 || *std::min_element(updates_.begin(), updates_.end()) < every) return false;
  std::fill(updates_.begin(), updates_.end(), 0);
  is_due_ = true;
  return true;
}

void GroupCopies::ResetCounts() {
  MutexLock lock(mu_);
  std::fill(updates_.begin(), updates_.end(), 0);
}

void GroupCopies::NoteAveraged() {
  MutexLock lock(mu_);
  is_due_ = false;
}

GroupImage GroupCopies::image() const {
  MutexLock lock(mu_);
  return {.is_due = is_due_, .updates = updates_, .counted = counted_};
}

void GroupCopies::Restore(const GroupImage& image) {
  MutexLock lock(mu_);
  is_due_ = image.is_due;
  updates_ = image.updates;
  counted_ = image.counted;
  updates_.resize(groups_, 0);
  counted_.resize(groups_);
}

void GroupCopies::ForgetSessions(const SessionSet& sessions) {
  MutexLock lock(mu_);
  for (UnitWindows& counted : counted_) counted.Forget(sessions);
}

absl::StatusOr<kernels::Divergence> GroupCopies::Average(std::uint32_t device,
                                                         const TableSpec& spec, OwnSlice& own,
                                                         const RowIntervals& rows) {
  Communicator& peers = *peers_[device];
  bool by_gpus = gpus_meet_;
  if (by_gpus) {
    shown_[device] = own.store->ShowRows(GpuMean::RowsAtOnce(own));
    EMBLA_ASSIGN_OR_RETURN(by_gpus, AllOf(shown_[device] != nullptr, peers));
  }
  std::vector<kernels::StepRows> copies;
  for (std::uint32_t d = device % devices_per_group_; by_gpus && d < shown_.size();
       d += devices_per_group_) {
    copies.push_back(*shown_[d]);
  }
  std::unique_ptr<SliceMean> mean;
  if (by_gpus) mean = std::make_unique<GpuMean>(own, peers, std::move(copies));
  if (!by_gpus) mean = std::make_unique<HostMean>(spec, own, peers);
  for (const RowInterval& interval : rows.intervals()) {
    EMBLA_RETURN_IF_ERROR(mean->Run(interval));
  }
  return mean->divergence();
}

}  // namespace embla
