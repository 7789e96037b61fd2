#include "server/storage/device_lanes.h"

#include <bit>

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// Padding between the parts of a cargo.
constexpr std::size_t kPaddingBytes = 16 * LaneCargo::kAlignment;

}  // namespace

absl::Status LaneCargo::Reset(gpu::Device& device, std::size_t bytes) {
  used_bytes_ = 0;
  const std::size_t needed = bytes + kPaddingBytes;
  if (needed <= host_.size()) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(gpu::PinnedMemory host, device.AllocatePinned(needed));
  EMBLA_ASSIGN_OR_RETURN(device_, device.Allocate(needed));
  host_ = std::move(host);
  return absl::OkStatus();
}

std::size_t LaneCargo::TakeBytes(std::size_t bytes) {
  const std::size_t at = used_bytes_;
  used_bytes_ += Padded(bytes);
  EMBLA_CHECK(used_bytes_ <= host_.size());
  return at;
}

std::byte* LaneCargo::Behind(std::size_t bytes) const {
  EMBLA_CHECK(used_bytes_ + bytes <= device_.size());
  return device_.data() + used_bytes_;
}

absl::Status Lane::SendTo(void* device) {
  EMBLA_RETURN_IF_ERROR(stream->CopyToDevice(device, in.host(), in.used_bytes()));
  return stream->Mark(gpu::Stream::MarkAt::kBegin);
}

absl::Status Lane::SendFrom(const void* host, std::size_t bytes, void* device) {
  direct_bytes_in += bytes;
  return stream->CopyToDevice(device, host, bytes);
}

absl::Status Lane::Bring(void* host, std::size_t bytes) {
  is_fetched = true;
  EMBLA_RETURN_IF_ERROR(stream->Mark(gpu::Stream::MarkAt::kEnd));
  return stream->CopyToHost(host, out.device(), bytes);
}

absl::Status Lane::FetchTo(void* host, std::size_t bytes) {
  EMBLA_CHECK(bytes <= out.used_bytes());
  direct_bytes_out += bytes;
  return Bring(host, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceLanes>> DeviceLanes::Create(gpu::Device& device,
                                                                 LaneObserver* observer,
                                                                 std::size_t piece_bytes) {
  std::unique_ptr<DeviceLanes> lanes(new DeviceLanes(device, observer, piece_bytes));
  for (Lane& lane : lanes->lanes_) {
    EMBLA_ASSIGN_OR_RETURN(lane.stream, device.NewStream());
    EMBLA_RETURN_IF_ERROR(lane.in.Reset(device, piece_bytes));
    EMBLA_RETURN_IF_ERROR(lane.out.Reset(device, piece_bytes));
  }
  return lanes;
}

absl::Status DeviceLanes::Reserve(const Room& room) {
  EMBLA_RETURN_IF_ERROR(device_.health());
  EMBLA_RETURN_IF_ERROR(lanes_[0].in.Reset(device_, room.in_bytes));
  EMBLA_RETURN_IF_ERROR(lanes_[0].out.Reset(device_, room.out_bytes));
  if (room.scratch_bytes <= scratch_.size()) return absl::OkStatus();
  scratch_ = gpu::DeviceMemory();  // First, so that the two never need room together.
  absl::StatusOr<gpu::DeviceMemory> grown = device_.Allocate(std::bit_ceil(room.scratch_bytes));
  if (absl::IsResourceExhausted(grown.status())) grown = device_.Allocate(room.scratch_bytes);
  if (!grown.ok()) return grown.status();
  scratch_ = *std::move(grown);
  return absl::OkStatus();
}

// A piece that sends nothing begins with its kernels, one that fetches nothing ends with them.
absl::Status DeviceLanes::Begin(Lane& lane) {
  lane.in.Clear();
  lane.out.Clear();
  lane.is_fetched = false;
  lane.direct_bytes_in = 0;
  lane.direct_bytes_out = 0;
  return lane.stream->Mark(gpu::Stream::MarkAt::kBegin);
}

absl::Status DeviceLanes::End(Lane& lane) {
  return lane.is_fetched ? absl::OkStatus() : lane.stream->Mark(gpu::Stream::MarkAt::kEnd);
}

// Also after an error: what is queued may still use the caller's memory.
absl::Status DeviceLanes::Land(std::size_t turn, absl::Status status, Finish finish) {
  Piece& piece = pieces_[turn];
  if (!piece.under_way) return status;
  piece.under_way = false;
  status.Update(lanes_[turn].stream->Synchronize());
  const Lane& lane = lanes_[turn];
  trip_.bytes_in += lane.in.used_bytes() + lane.direct_bytes_in;
  trip_.direct_bytes_in += lane.direct_bytes_in;
  trip_.bytes_out += lane.out.used_bytes();
  trip_.direct_bytes_out += lane.direct_bytes_out;
  if (!status.ok()) return status;
  EMBLA_ASSIGN_OR_RETURN(const std::chrono::nanoseconds kernels,
                         lanes_[turn].stream->BetweenMarks());
  trip_.kernels += kernels;
  finish(lanes_[turn], piece.begin, piece.end);
  return status;
}

absl::Status DeviceLanes::Run(std::size_t count, Cut cut, Queue queue, Finish finish) {
  if (observer_ == nullptr) return Carry(count, cut, queue, finish);
  trip_ = {};
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = Carry(count, cut, queue, finish);
  trip_.took = std::chrono::steady_clock::now() - start;
  trip_.stopped = !status.ok() && !device_.health().ok();
  observer_->OnTrip(trip_);
  return status;
}

absl::Status DeviceLanes::Carry(std::size_t count, Cut cut, Queue queue, Finish finish) {
  absl::Status status = device_.health();
  std::size_t turn = 0;
  for (std::size_t begin = 0; status.ok() && begin < count;) {
    status = Land(turn, std::move(status), finish);
    if (!status.ok()) break;
    const std::size_t end = std::min(cut(begin), count);
    EMBLA_CHECK(end > begin);
    pieces_[turn] = {begin, end, true};
    status = Begin(lanes_[turn]);
    if (status.ok()) status = queue(lanes_[turn], begin, end);
    if (status.ok()) status = End(lanes_[turn]);
    begin = end;
    turn ^= 1;
  }
  // The older one first.
  for (std::size_t i = 0; i < lanes_.size(); ++i, turn ^= 1) {
    status = Land(turn, std::move(status), finish);
  }
  return status;
}

absl::Status DeviceLanes::Run(std::size_t count, std::size_t item_bytes, Queue queue,
                              Finish finish) {
  const std::size_t items =
      std::max<std::size_t>(1, piece_bytes_ / std::max<std::size_t>(1, item_bytes));
  return Run(
      count, [items](std::size_t begin) { return begin + items; }, queue, finish);
}

}  // namespace embla
