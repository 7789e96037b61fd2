// TorchRec's cost model, constant for constant and formula for formula (commit a48cef79), so that
// plans can be compared with its planner's. docs/planner.md has the formulas in one table.
#pragma once

#include "core/planner/problem/cost_model.h"

namespace embla::planner {

class TorchRecCost final : public CostModel {
 public:
  explicit TorchRecCost(const Problem& problem);  // Borrowed; outlives this object.

  Price PriceOf(const Table& table, const Cut& cut) const override;
  std::string_view name() const override { return "torchrec"; }

 private:
  struct Volume;  // Bytes in, looked up and out per shard and step.
  Volume VolumeOf(const Table& table, const Cut& cut) const;
  void AddTimes(const Table& table, const Cut& cut, Price* price) const;
  void AddBytes(const Table& table, const Cut& cut, Price* price) const;
  double KernelBandwidth(const Cut& cut) const;
  double BufferBytes(const Table& table, const Cut& cut) const;

  const Problem& problem_;
  double world_ = 1;  // Devices.
  double local_ = 1;  // Devices of one host (of the smallest).
};

}  // namespace embla::planner
