#include "core/planner/explain/bars.h"

#include <algorithm>

namespace embla::planner {
namespace {

constexpr int kRowsMax = 8;
constexpr int kPerRow = 128;

}  // namespace

Bars::Bars(const Machine& machine, double left, double inner) : left_(left) {
  const std::uint32_t devices = machine.devices();
  const int wanted =
      devices <= kPerRow / 2 ? 1 : std::min<int>(kRowsMax, (devices + kPerRow - 1) / kPerRow);
  const std::uint32_t per_row = (devices + wanted - 1) / wanted;
  std::uint32_t in_row = 0;
  std::uint32_t longest = 0, hosts_in_row = 0, most_hosts = 0;
  for (std::uint32_t h = 0; h < machine.hosts(); ++h) {
    const std::uint32_t count = machine.devices_of(h);
    if (in_row > 0 && in_row + count > per_row) {
      ++rows_;
      in_row = hosts_in_row = 0;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      column_.push_back(in_row++);
      group_.push_back(hosts_in_row);
      row_.push_back(rows_);
    }
    most_hosts = std::max(most_hosts, ++hosts_in_row);
    longest = std::max(longest, in_row);
  }
  ++rows_;
  // A tenth of the width goes to the gaps between hosts.
  host_gap_ = most_hosts > 1 ? std::min(18.0, inner * 0.1 / (most_hosts - 1)) : 0;
  step_ = std::min(90.0, (inner - host_gap_ * (most_hosts - 1)) / std::max(1u, longest));
  width_ = step_ > 4 ? step_ * 0.84 : step_ > 2 ? step_ * 0.9 : step_;
}

}  // namespace embla::planner
