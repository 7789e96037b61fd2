#include "server/table/finite_check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"
#include "kernels/convert.h"
#include "server/table/element.h"

namespace embla {
namespace {

constexpr std::size_t kRowsPerCheck = 4096;

bool HasNonFinite(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(),
                     [](float value) { return !std::isfinite(value); });
}

}  // namespace

absl::Status CheckFinite(const UpdateBatch& batch, const UpdatePart& part, GradientRows rows,
                         ThreadPool& pool) {
  const kernels::Element element = ElementOf(batch.wire_dtype);
  const std::size_t row_bytes = part.row_bytes(batch.wire_dtype);
  const auto columns =
      static_cast<std::uint32_t>(part.is_images() ? part.image_floats() : part.columns());
  std::atomic<bool> bad =
      rows.begin == 0 && (HasNonFinite(part.weights) || HasNonFinite(part.row_sum_squares));
  const std::size_t row_count = batch.gradients_are_finite ? 0 : rows.end - rows.begin;
  pool.ParallelFor(row_count, kRowsPerCheck, [&](std::size_t begin, std::size_t end) {
    const std::byte* const base = part.gradients.data() + (rows.begin + begin) * row_bytes;
    if (kernels::HasNonFinite({base, row_bytes, element}, end - begin, columns)) {
      bad.store(true, std::memory_order_relaxed);
    }
  });
  if (!bad.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(part.is_images() ? "a written number" : "a gradient",
                   " is NaN or infinite, and its nan_policy is "
                   "reject"));
}

void ArrivingNumbers::Filled(std::size_t filled) {
  if (dtype_ == DType::kInt8Rowwise || !is_finite_) return;
  const std::size_t number_bytes = ElementBytes(dtype_);
  const std::size_t count = (filled - checked_) / number_bytes;
  is_finite_ = !kernels::HasNonFinite({place_ + checked_, count * number_bytes, ElementOf(dtype_)},
                                      1, static_cast<std::uint32_t>(count));
  if (is_finite_) checked_ += count * number_bytes;
}

}  // namespace embla
