#include "server/storage/memory_budget.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/byte_text.h"

namespace embla {

MemoryGrant& MemoryGrant::operator=(MemoryGrant&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void MemoryGrant::Reset() {
  if (budget_ != nullptr) budget_->used_bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  budget_ = nullptr;
  bytes_ = 0;
}

absl::StatusOr<MemoryGrant> MemoryBudget::Take(std::size_t bytes) {
  std::size_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    // used <= limit always, so the difference does not wrap.
    if (bytes > limit_bytes_ - used) {
      return absl::ResourceExhaustedError(
          absl::StrCat("device memory: ", FormatBytes(static_cast<std::int64_t>(bytes)),
                       " asked for, ", FormatBytes(static_cast<std::int64_t>(used)), " of ",
                       FormatBytes(static_cast<std::int64_t>(limit_bytes_)), " in use"));
    }
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return MemoryGrant(this, bytes);
}

}  // namespace embla
