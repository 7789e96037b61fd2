// A workload's tables on the device, batches of slots for them, and their lookups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/ceilings.h"
#include "bench/gpu/gpu_rounds.h"
#include "bench/gpu/workload.h"
#include "kernels/cuda/testing/device_memory.h"
#include "kernels/cuda/testing/recording.h"
#include "kernels/row_kernels.h"

namespace embla::bench {

using kernels::cuda::OnDevice;
using kernels::cuda::Recording;
using kernels::cuda::StreamHandle;

inline constexpr std::size_t kBatches = 4;

// Ends the process with the error's text.
void CheckVerb(int error);

// A copy that no cache holds.
class CopyCeiling {
 public:
  explicit CopyCeiling(std::size_t bytes);
  // By a kernel of four units in flight, and by the driver. They refer to this object.
  GpuContender kernel() const;
  GpuContender driver() const;

 private:
  std::size_t bytes_;
  OnDevice from_;
  OnDevice to_;
};

// A batch as recorded launches, one recording for each of the batches.
class RecordedBatches {
 public:
  // `queue(batch, stream)` queues a batch's work.
  template <typename Queue>
  explicit RecordedBatches(const Queue& queue) {
    for (std::size_t b = 0; b < kBatches; ++b) {
      recordings_.push_back(
          std::make_unique<Recording>([&, b](StreamHandle stream) { queue(b, stream); }));
    }
  }
  void Replay(std::size_t batch) { recordings_[batch]->ReplayAsync(); }

 private:
  std::vector<std::unique_ptr<Recording>> recordings_;
};

// Weights are uniform in [-1, 1], functions of (row, column): the host makes any row by itself.
class DeviceTables {
 public:
  explicit DeviceTables(const Workload& workload);

  const Workload& workload() const { return workload_; }
  // Weights as they begin.
  void Initialize();
  // The row of `slot` as it begins, into row_bytes() of host memory.
  void InitialRow(std::uint32_t slot, std::byte* out) const;

  // All tables as one, or table t alone.
  kernels::MutableRows rows() const { return RowsFrom(0); }
  kernels::MutableRows RowsFrom(std::uint32_t table) const;
  DeviceRowArray row_array() const { return {weights_.data(), workload_.row_bytes()}; }

  const std::vector<std::uint32_t>& slots(std::size_t batch) const { return slots_[batch]; }
  const std::uint32_t* DeviceSlots(std::size_t batch) const {
    return device_slots_[batch]->As<std::uint32_t>();
  }
  // Returns slots of table t, counted from its first row.
  const std::uint32_t* LocalSlots(std::size_t batch, std::uint32_t table) const {
    return local_slots_[batch]->As<std::uint32_t>() + table * workload_.ids_of_table();
  }
  // Beginnings of the bags, and the end: of all tables, or, as far as that, of any one.
  const std::uint32_t* offsets() const { return offsets_.As<std::uint32_t>(); }

  // Sums or rows of a batch in fp32, output after output: in one launch, or one for each table.
  void LookUp(std::size_t batch, StreamHandle stream) const;
  void LookUpByTable(std::size_t batch, StreamHandle stream) const;
  // Ends the process when `look_up(0)` leaves something else than the reference.
  void VerifyLookup(const std::string& what, const std::function<void(std::size_t)>& look_up) const;

  // The ceiling of lookups: a batch's rows, read.
  GpuContender RandomReads() const;

 private:
  void LookUpRows(const kernels::MutableRows& rows, const std::uint32_t* slots, std::size_t bags,
                  float* out, StreamHandle stream) const;
  std::vector<std::byte> ExpectedOutput(std::size_t output) const;

  const Workload workload_;
  OnDevice weights_;
  OnDevice outputs_;
  OnDevice offsets_;
  OnDevice xor_outputs_;
  std::vector<std::vector<std::uint32_t>> slots_;
  std::vector<std::unique_ptr<OnDevice>> device_slots_;
  std::vector<std::unique_ptr<OnDevice>> local_slots_;
};

}  // namespace embla::bench
