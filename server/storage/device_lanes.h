// How batches travel between host memory and a GPU: in pieces, on two lanes in turn, so that the
// host fills and empties one lane while the GPU works on the other.
//
// A lane is a stream with memory at both of its ends: pinned on the host, and its twin on the GPU.
// Rows and ids are copied between that memory and the caller's on the host, which costs less than
// the link does.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/gpu/device.h"

namespace embla {

// The data that a lane carries in one direction.
class LaneCargo {
 public:
  // The same bytes at both ends.
  template <typename T>
  struct Part {
    T* host = nullptr;
    T* device = nullptr;
  };

  void Clear() { used_bytes_ = 0; }
  // Forgets what was taken, and makes room for `bytes`, padding excluded. ResourceExhausted.
  absl::Status Reset(gpu::Device& device, std::size_t bytes);
  // Room for `count` items, aligned to kAlignment. Requires: Reset made room for it.
  template <typename T>
  Part<T> Take(std::size_t count) {
    const std::size_t at = TakeBytes(count * sizeof(T));
    return {reinterpret_cast<T*>(host_.data() + at), reinterpret_cast<T*>(device_.data() + at)};
  }
  // The same, with a copy of `items` on the host.
  template <typename T>
  const T* Put(std::span<const T> items) {
    const Part<T> part = Take<T>(items.size());
    std::copy(items.begin(), items.end(), part.host);
    return part.device;
  }

  // Memory of the GPU behind all that was taken, for the kernels of the piece: it does not travel.
  // Requires: Reset made room for it, too.
  std::byte* Behind(std::size_t bytes) const;

  static constexpr std::size_t kAlignment = 16;
  static constexpr std::size_t Padded(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::byte* host() const { return host_.data(); }
  std::byte* device() const { return device_.data(); }
  std::size_t used_bytes() const { return used_bytes_; }

 private:
  std::size_t TakeBytes(std::size_t bytes);

  gpu::PinnedMemory host_;
  gpu::DeviceMemory device_;
  std::size_t used_bytes_ = 0;
};

struct Lane {
  LaneCargo in;   // To the GPU.
  LaneCargo out;  // From it.
  // After the memory that it uses: it is waited for first.
  std::unique_ptr<gpu::Stream> stream;

  absl::Status Send() { return SendTo(in.device()); }
  // The same to other memory of the GPU.
  absl::Status SendTo(void* device);
  // Copies `bytes` from pinned memory of the caller; before Send.
  absl::Status SendFrom(const void* host, std::size_t bytes, void* device);
  absl::Status Fetch() { return Bring(out.host(), out.used_bytes()); }
  // The first `bytes` straight to pinned memory of the caller.
  absl::Status FetchTo(void* host, std::size_t bytes);

  // State of the piece under way.
  bool is_fetched = false;  // The end of its kernels is marked.
  // Between the GPU and pinned memory of the caller, without the lane's.
  std::size_t direct_bytes_in = 0;
  std::size_t direct_bytes_out = 0;

 private:
  absl::Status Bring(void* host, std::size_t bytes);
};

// Hears of every batch that lanes have carried, on the thread that asked for it.
class LaneObserver {
 public:
  struct Trip {
    std::chrono::nanoseconds took{};
    std::chrono::nanoseconds kernels{};  // Kernels' part of `took`, by the GPU's clock.
    std::size_t bytes_in = 0;            // To the GPU,
    std::size_t direct_bytes_in = 0;     // of which so many straight from the caller,
    std::size_t bytes_out = 0;           // and back,
    std::size_t direct_bytes_out = 0;    // of which so many straight to the caller.
    bool stopped = false;                // The GPU has, for good.
  };
  virtual void OnTrip(const Trip& trip) = 0;

 protected:
  ~LaneObserver() = default;
};

// Thread safety: none; it belongs to the device's thread.
class DeviceLanes {
 public:
  // `piece_bytes`: of cargo each way that a piece has, about; large enough that the link's latency
  // does not count. `observer` may be null; it is not owned and outlives the lanes, as `device`
  // does. Errors: those of gpu::Device.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  static absl::StatusOr<std::unique_ptr<DeviceLanes>> Create(gpu::Device& device,
                                                             LaneObserver* observer = nullptr,
                                                             std::size_t piece_bytes = kPieceBytes);
  gpu::Device& device() const { return device_; }
  std::size_t piece_bytes() const { return piece_bytes_; }

  // The needs of one trip of one piece: of cargo, padding excluded, and of scratch memory.
  struct Room {
    std::size_t in_bytes = 0;
    std::size_t out_bytes = 0;
    std::size_t scratch_bytes = 0;
  };
  // Makes room before anything is queued, so that what changes memory of the GPU does not fail
  // halfway for want of some. ResourceExhausted: nothing has changed, but scratch() may be smaller.
  absl::Status Reserve(const Room& room);
  // Memory of the GPU for one batch after the other, whichever table's: as large as the largest
  // Reserve has asked for.
  std::byte* scratch() const { return scratch_.data(); }

  // Returns the end of the piece that begins at `begin`; above `begin`.
  using Cut = absl::FunctionRef<std::size_t(std::size_t begin)>;
  // Queues the work of items [begin, end).
  using Queue = absl::FunctionRef<absl::Status(Lane& lane, std::size_t begin, std::size_t end)>;
  // Takes its results, once they are there.
  using Finish = absl::FunctionRef<void(Lane& lane, std::size_t begin, std::size_t end)>;

  // Carries `count` items. When it returns, nothing is under way. The first error ends it; pieces
  // before may have been done.
  absl::Status Run(std::size_t count, Cut cut, Queue queue, Finish finish);
  // With pieces of as many items as fit, when an item has `item_bytes` of cargo one way at most.
  absl::Status Run(std::size_t count, std::size_t item_bytes, Queue queue, Finish finish);

 private:
  struct Piece {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool under_way = false;
  };

  DeviceLanes(gpu::Device& device, LaneObserver* observer, std::size_t piece_bytes)
      : device_(device), observer_(observer), piece_bytes_(piece_bytes) {}
  absl::Status Carry(std::size_t count, Cut cut, Queue queue, Finish finish);
  absl::Status Begin(Lane& lane);
  absl::Status End(Lane& lane);
  absl::Status Land(std::size_t turn, absl::Status status, Finish finish);

  gpu::Device& device_;           // Not owned; outlives this object.
  LaneObserver* const observer_;  // Not owned; may be null.
  const std::size_t piece_bytes_;
  gpu::DeviceMemory scratch_;  // Before the lanes: their streams are waited for first.
  std::array<Lane, 2> lanes_;
  std::array<Piece, 2> pieces_;
  LaneObserver::Trip trip_;  // In progress.
};

}  // namespace embla
