#include "server/table/id_numbering.h"

#include <algorithm>
#include <bit>

#include "absl/hash/hash.h"
#include "server/table/reused_vector.h"

namespace embla {

void IdNumbering::Number(std::span<const std::int64_t> ids) {
  ResizeReused(number_of_, ids.size());
  ResizeReused(distinct_, ids.size());
  distinct_.clear();
  if (std::is_sorted(ids.begin(), ids.end())) {
    NumberAscending(ids);
  } else {
    NumberByHash(ids);
  }
}

void IdNumbering::NumberAscending(std::span<const std::int64_t> ids) {
  for (std::size_t p = 0; p < ids.size(); ++p) {
    if (distinct_.empty() || distinct_.back() != ids[p]) distinct_.push_back(ids[p]);
    number_of_[p] = static_cast<std::uint32_t>(distinct_.size() - 1);
  }
}

// Open addressing with linear probing; at most half of the places are taken.
void IdNumbering::NumberByHash(std::span<const std::int64_t> ids) {
  const std::size_t mask = std::bit_ceil(2 * ids.size()) - 1;
  ResizeReused(places_, mask + 1);
  std::fill(places_.begin(), places_.end(), 0u);
  const absl::Hash<std::int64_t> hash;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    std::size_t at = hash(ids[p]) & mask;
    while (places_[at] != 0 && distinct_[places_[at] - 1] != ids[p]) at = (at + 1) & mask;
    if (places_[at] == 0) {
      distinct_.push_back(ids[p]);
      places_[at] = static_cast<std::uint32_t>(distinct_.size());
    }
    number_of_[p] = places_[at] - 1;
  }
}

}  // namespace embla
