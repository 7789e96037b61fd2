#include "tools/train/slot_finder.h"

#include <algorithm>

namespace embla::train {

void SlotFinder::Begin(std::size_t rows) {
  const std::size_t ids_before = map_.size();
  map_.clear();
  map_.reserve(ids_before);
  rows_ = rows <= kArrayRowsMax ? rows : 0;
  if (array_.size() < rows_) array_.resize(rows_);
  if (++round_ == 0) {
    std::ranges::fill(array_, Entry());
    round_ = 1;
  }
}

}  // namespace embla::train
