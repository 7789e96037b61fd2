#include "core/base/trace_context.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"

namespace embla {
namespace {

std::optional<std::uint64_t> FromHex(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char c : digits) {
    const bool is_decimal = c >= '0' && c <= '9';
    if (!is_decimal && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<std::uint64_t>(is_decimal ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace

TraceContext TraceContext::Parse(std::string_view text) {
  if (text.size() < kTextBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const auto version = FromHex(text.substr(0, 2));
  const auto high = FromHex(text.substr(3, 16));
  const auto low = FromHex(text.substr(19, 16));
  const auto span = FromHex(text.substr(36, 16));
  const auto flags = FromHex(text.substr(53, 2));
  if (!version || !high || !low || !span || !flags || *version == 0xff) return {};
  if (text.size() > kTextBytes && (*version == 0 || text[kTextBytes] != '-')) return {};
  if ((*high | *low) == 0 || *span == 0) return {};
  return {.trace_high = *high, .trace_low = *low, .span = *span, .sampled = (*flags & 1) != 0};
}

TraceContext TraceContext::Child() const {
  TraceContext child = *this;
  child.span = RandomId64();
  return child;
}

std::string TraceContext::ToString() const {
  return absl::StrCat("00-", TraceId(), "-", SpanIdText(span), sampled ? "-01" : "-00");
}

std::string TraceContext::TraceId() const {
  return absl::StrCat(absl::Hex(trace_high, absl::kZeroPad16),
                      absl::Hex(trace_low, absl::kZeroPad16));
}

std::string SpanIdText(std::uint64_t span) {
  return absl::StrCat(absl::Hex(span, absl::kZeroPad16));
}

}  // namespace embla
