// Positions of the devices' bars in a picture: up to 8 rows, hosts kept together and a little
// apart.
#pragma once

#include <cstdint>
#include <vector>

#include "core/planner/problem/machine.h"

namespace embla::planner {

class Bars {
 public:
  // Bars from `left` on, within `width`.
  Bars(const Machine& machine, double left, double width);

  int rows() const { return rows_; }
  int row(std::uint32_t device) const { return row_[device]; }
  double x(std::uint32_t device) const {
    return left_ + column_[device] * step_ + group_[device] * host_gap_;
  }
  // Width of one bar.
  double width() const { return width_; }

 private:
  const double left_;
  std::vector<std::uint32_t> column_, group_;  // In its row; the latter counts hosts.
  std::vector<int> row_;
  int rows_ = 0;
  double host_gap_ = 0, step_ = 0, width_ = 0;
};

}  // namespace embla::planner
