// Updates of a workload's tables on the device: gradients, optimizer state, and what they need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/device_tables.h"
#include "kernels/optimizer_step.h"

namespace embla::bench {

// Gradients are functions of (bag or id, column), the same for every batch.
class DeviceUpdates {
 public:
  DeviceUpdates(const Workload& workload, OptimizerKind rule);

  DeviceTables& tables() { return tables_; }

  // Groups the batch's slots, sums duplicates and steps each touched row: all tables as one, or one
  // after the other.
  void Update(std::size_t batch, StreamHandle stream) const;
  void UpdateByTable(std::size_t batch, StreamHandle stream) const;

  // Weights and state as they begin.
  void Initialize();
  // Ends the process when `update(0)` of the tables as they begin leaves something else than the
  // reference.
  void VerifyUpdate(const std::string& what, const std::function<void(std::size_t)>& update);

  // The ceiling of updates: a batch's touched rows and their state by column, read and written.
  GpuContender RandomUpdates() const;

 private:
  // A table's share of a batch; or all of it.
  struct Part {
    std::uint32_t first_table;
    std::uint32_t tables;
    const std::uint32_t* slots;
  };
  void UpdatePart(const Part& part, StreamHandle stream) const;
  kernels::StepRows StepRowsOf(std::uint32_t first_table) const;
  std::vector<std::uint32_t> VerifiedSlots() const;
  // Copies a slot's bytes from the device: weights, row state, element state, one after the other.
  std::vector<std::byte> RowOnDevice(std::uint32_t slot) const;
  // The first batch's gradients of the verified rows, in the order of its positions.
  struct RowGradients {
    std::vector<std::int64_t> rows_of;  // Position i's is that of verified_[rows_of[i]].
    std::vector<float> values;          // dim floats each.
  };
  RowGradients GradientsOfVerified() const;
  // Returns the rows of verified_[i] after the reference's update.
  std::vector<std::vector<std::byte>> ReferenceRows() const;

  std::size_t element_state_bytes() const {  // Bytes in one row.
    return std::size_t{kernels::ElementStateArrays(parameters_.rule)} * tables_.workload().dim *
           sizeof(float);
  }
  std::size_t row_state_bytes() const {
    return kernels::RowStateFloats(parameters_.rule) * sizeof(float);
  }

  DeviceTables tables_;
  kernels::StepParameters parameters_;
  OnDevice row_state_;
  OnDevice element_state_;
  OnDevice gradients_;
  OnDevice bag_of_;  // By position, of pooled workloads.
  std::size_t grouping_bytes_ = 0;
  std::unique_ptr<OnDevice> grouping_;
  std::size_t partial_bytes_;
  OnDevice partials_;
  std::vector<std::vector<std::uint32_t>> unique_;
  std::vector<std::unique_ptr<OnDevice>> device_unique_;
  std::vector<std::uint32_t> verified_;  // Slots, and what is expected at each after an update.
  std::vector<std::vector<std::byte>> expected_;
};

}  // namespace embla::bench
