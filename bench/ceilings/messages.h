// The messages between the two ends of a ceiling. Both are on one machine: numbers lie as in
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/ceilings/ceiling.h"

namespace embla::bench {

// The first bytes of a request. With work, ids follow as int64, and with kStep their gradients:
// `ids` x `dim` floats.
struct RequestHeader {
  std::uint64_t reply_bytes = 0;
  std::uint64_t request_bytes = 0;  // The header's, too.
  Work work = Work::kNone;
  std::uint32_t ids = 0;
  std::uint32_t dim = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RequestHeader) == 32);

// The requests of a load, to be sent in turn: several with work, so that their rows are not in a
// cache; their ids are random and distinct.
std::vector<std::vector<char>> MakeRequests(const Load& load);

// Whether `reply` has the first and the last weight that the work of `request` leaves.
bool IsAnswered(const Load& load, std::span<const char> request, std::span<const char> reply);

}  // namespace embla::bench
