#include "server/app/device_list.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr std::int64_t kDevicesMax = 64;

// The machine's memory, or the container's when that is less.
std::int64_t MemoryBytes() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const absl::StatusOr<std::string> limit = ReadFile("/sys/fs/cgroup/memory.max");
  if (!limit.ok()) return bytes;
  std::int64_t limit_bytes = 0;
  const auto parsed = std::from_chars(limit->data(), limit->data() + limit->size(), limit_bytes);
  if (parsed.ec == std::errc() && limit_bytes > 0) bytes = std::min(bytes, limit_bytes);
  return bytes;
}

}  // namespace

absl::StatusOr<std::vector<DeviceSpec>> ParseDevices(const std::string& text,
                                                     std::int64_t memory_per_device) {
  if (absl::StartsWith(text, "gpu")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--devices ", text,
        ": this embla-shard serves CPU devices only; GPU devices need the CUDA row store and the "
        "NCCL communicator, which this build does not have. Use --devices cpu:N"));
  }
  std::int64_t count = 0;
  const std::string_view number =
      absl::StartsWith(text, "cpu:") ? std::string_view(text).substr(4) : std::string_view();
  const char* const end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, count);
  if (number.empty() || parsed.ec != std::errc() || parsed.ptr != end || count < 1 ||
      count > kDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", text, ": want cpu:N with N from 1 to ", kDevicesMax));
  }
  const std::int64_t memory_bytes =
      memory_per_device > 0 ? memory_per_device : MemoryBytes() / 10 * 8 / count;
  return std::vector<DeviceSpec>(static_cast<std::size_t>(count),
                                 {.kind = DeviceKind::kCpu, .memory_bytes = memory_bytes});
}

absl::StatusOr<std::int64_t> ParseBytes(const std::string& text) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat("`", text, "` is not a number of bytes such as 1073741824, 512MiB or 64G"));
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || value < 0) return error;
  std::string unit(absl::StripAsciiWhitespace(absl::string_view(
      parsed.ptr, static_cast<std::size_t>(text.data() + text.size() - parsed.ptr))));
  absl::AsciiStrToUpper(&unit);
  if (absl::EndsWith(unit, "B")) unit.pop_back();
  if (absl::EndsWith(unit, "I")) unit.pop_back();
  constexpr std::string_view kUnits = "KMGT";
  if (unit.empty()) return value;
  const std::size_t power = unit.size() == 1 ? kUnits.find(unit[0]) : std::string_view::npos;
  if (power == std::string_view::npos) return error;
  const int shift = 10 * (static_cast<int>(power) + 1);
  if (value > (std::numeric_limits<std::int64_t>::max() >> shift)) return error;
  return value << shift;
}

}  // namespace embla
