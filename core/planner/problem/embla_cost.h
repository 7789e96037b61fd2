// Embla's own requests as a cost model: one lookup and one update RPC per trainer, node and step.
//
// A device pays for gathering and stepping rows at the bandwidth of the memory that holds them, for
// the reduction inside its node, and a fixed overhead per shard. A host's network interface is
// shared: ids in, rows out, gradients in are its load, apart from the devices'. Row blocks pay for
// skew: the block with the hottest row gets that row's lookups besides its even part.
#pragma once

#include "core/planner/problem/cost_model.h"

namespace embla::planner {

class EmblaCost final : public CostModel {
 public:
  explicit EmblaCost(const Problem& problem);  // Borrowed; outlives this object.

  Price PriceOf(const Table& table, const Cut& cut) const override;
  std::string_view name() const override { return "embla"; }

 private:
  struct Traffic;
  Traffic TrafficOf(const Table& table, const Cut& cut) const;
  // Bytes/ms at which rows of `bytes` are read where `kernel` keeps them.
  double RowBandwidth(const Table& table, Kernel kernel) const;
  void AddBytes(const Table& table, const Cut& cut, const Traffic& traffic, Price* price) const;

  const Problem& problem_;
  double devices_ = 1;
  double devices_per_host_ = 1;
};

}  // namespace embla::planner
