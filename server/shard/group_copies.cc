#include "server/shard/group_copies.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/convert.h"
#include "server/collective/host_communicator.h"
#include "server/table/element.h"

namespace embla {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

// Most sessions whose updates are counted, per group; trainers without a name never close theirs.
constexpr std::size_t kCountedSessionsMax = 4096;

// One slice on its way through the averaging, a chunk of rows at a time.
class SliceMean {
 public:
  SliceMean(const TableSpec& spec, OwnSlice& own, Communicator& peers)
      : own_(own),
        peers_(peers),
        element_(ElementOf(spec.dtype)),
        row_bytes_(RowBytes(spec.dtype, own.slice.columns())),
        state_floats_(own.store->StateFloats(own.slice.columns())) {
    row_.weights = own.slice.columns();
    row_.counters = StateShapeOf(spec.optimizer).row_counters;
    row_.floats = row_.weights + state_floats_;
  }

  absl::Status Run(RowInterval rows) {
    const std::size_t rows_at_once =
        std::max<std::size_t>(peers_.size(), kChunkBytes / (row_.floats * sizeof(float)));
    const auto end = static_cast<std::size_t>(rows.end - own_.slice.row_begin);
    absl::Status written;
    for (auto first = static_cast<std::size_t>(rows.begin - own_.slice.row_begin); first < end;
         first += rows_at_once) {
      slots_.resize(std::min(rows_at_once, end - first));
      std::iota(slots_.begin(), slots_.end(), static_cast<std::uint32_t>(first));
      // All copies' rows must be readable before any is changed.
      const absl::Status mine = Read();
      std::int32_t worst = 0;
      EMBLA_RETURN_IF_ERROR(peers_.AllReduceMax(mine.ok() ? 0 : 1, worst));
      EMBLA_RETURN_IF_ERROR(mine);
      if (worst != 0) return absl::AbortedError("another copy of the table cannot be read");
      EMBLA_RETURN_IF_ERROR(Exchange());
      // With an error too: the other copies go on, and wait for this one.
      written.Update(Write());
    }
    return written;
  }

  const Divergence& divergence() const { return divergence_; }

 private:
  // The chunk's rows as floats, to rows_.
  absl::Status Read() {
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
    divergence_.Add(MeanOfCopies(theirs_, ranks, row_, mean_));
    return peers_.AllGather(mean_, shares, rows_);
  }

  absl::Status Write() {
    const std::size_t stride = row_.floats * sizeof(float);
    kernels::Convert({rows_.data(), stride}, {weights_.data(), row_bytes_, element_}, slots_.size(),
                     own_.slice.columns());
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::copy_n(rows_.data() + i * row_.floats + row_.weights, state_floats_,
                  state_.data() + i * state_floats_);
    }
    return own_.store->WriteRows(slots_, own_.columns(), {weights_, state_});
  }

  OwnSlice& own_;
  Communicator& peers_;
  const kernels::Element element_;
  const std::size_t row_bytes_;  // Bytes of the weights, as stored.
  const std::size_t state_floats_;
  CopyRow row_;
  Divergence divergence_;

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

}  // namespace

GroupCopies::GroupCopies(const TableSpec& spec, std::uint32_t devices, Metrics* metrics)
    : groups_(spec.replica_groups),
      devices_per_group_(devices / spec.replica_groups),
      peers_(MakePeers(groups_, devices_per_group_)),
      metrics_(metrics, spec.name),
      updates_(groups_, 0),
      counted_(groups_) {
  EMBLA_CHECK(devices % groups_ == 0);
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

absl::StatusOr<Divergence> GroupCopies::Average(std::uint32_t device, const TableSpec& spec,
                                                OwnSlice& own, const RowIntervals& rows) {
  SliceMean mean(spec, own, *peers_[device]);
  for (const RowInterval& interval : rows.intervals()) {
    EMBLA_RETURN_IF_ERROR(mean.Run(interval));
  }
  return mean.divergence();
}

}  // namespace embla
