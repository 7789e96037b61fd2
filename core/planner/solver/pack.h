// Puts chosen options on devices: big ones first, each where it hurts least.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/planner/solver/layout.h"

namespace embla::planner {

// Meanings of "hurts least".
enum class PackRule : std::uint8_t {
  kLoad = 0,       // Least load afterwards: memory is loose.
  kMaxNorm = 1,    // Least max(load / target, bytes / capacity).
  kQuadratic = 2,  // Least growth of (load / target)^2 + (bytes / capacity)^2.
};

class Packer {
 public:
  // `layout` is borrowed. `target` is the load to aim at.
  Packer(Layout& layout, PackRule rule, Ticks target);

  // Places `option` of `table` greedily; false leaves it unplaced. Requires: unplaced.
  bool TryPlace(std::uint32_t table, std::uint32_t option);

  // Places every table: tables on all devices, then host-shaped ones, then shards, each largest
  // first. A table whose pick does not fit takes its cheapest option that does. False: some table
  // fits with no option; the layout is then incomplete.
  bool PlaceAll(const std::vector<std::uint32_t>& picks);

  std::int64_t operations() const { return operations_; }

 private:
  std::int64_t Score(std::uint32_t device, const Option& option) const;
  // Like Score, from the ratios kept beside the layout.
  std::int64_t QuickScore(std::uint32_t device, std::int64_t time, std::int64_t space) const {
    const std::int64_t t = time_[device], s = space_[device];
    if (rule_ == PackRule::kMaxNorm) return std::max(t + time, s + space);
    return time * (2 * t + time) + space * (2 * s + space);
  }
  void RefreshAll();
  void Refresh(std::uint32_t table);
  // The best device of [begin, end) that fits, or Layout::kUnplaced.
  std::uint32_t BestDevice(const std::uint32_t* begin, const std::uint32_t* end,
                           const Option& option, std::uint32_t table, const Layout::Targets& taken);
  bool TryShards(std::uint32_t table, std::uint32_t option);
  bool TryOneHost(std::uint32_t table, std::uint32_t option);
  bool TryRows(std::uint32_t table, std::uint32_t option);
  bool TryEverywhere(std::uint32_t table, std::uint32_t option);
  bool PlaceOther(std::uint32_t table, std::uint32_t refused);
  std::int64_t SizeOf(const Option& option) const;

  Layout& layout_;
  const OptionSet& options_;
  const Machine& machine_;
  const PackRule rule_;
  // Reciprocals: of the target load, of the mean memory, and of each device's (not for kLoad).
  const std::int64_t per_target_;
  const std::int64_t per_mean_capacity_;
  std::vector<std::int64_t> per_capacity_;
  // Load and bytes of every device as ratios, while PlaceAll is at work on equal devices.
  bool quick_ = false;
  std::vector<std::int64_t> time_, space_;
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
