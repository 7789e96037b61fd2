// The work that a shard server cannot do without: rows of a table are gathered, or stepped by
// row-wise Adagrad. No checks, no windows, no plan, and gradients that need no sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "bench/ceilings/messages.h"
#include "core/base/mutex.h"

namespace embla::bench {

// Thread safety: every method may be called from any thread; work is done one after the other.
class RowWork {
 public:
  RowWork();
  ~RowWork();

  // `body` follows the request's header, aligned for floats, as `reply` is. Row r of what is
  // gathered has weights r; what is stepped begins with zeros, and the reply begins with the first
  // weight of the first id and the last one of the last. Requires: request and reply have room
  // for what `header` says.
  void Do(const RequestHeader& header, std::span<const std::byte> body, std::span<std::byte> reply);

 private:
  class Table;

  Mutex mu_;
  std::map<std::uint32_t, std::unique_ptr<Table>> tables_ ABSL_GUARDED_BY(mu_);  // By dim.
};

}  // namespace embla::bench
