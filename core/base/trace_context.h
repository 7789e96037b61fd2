// The name of a request across processes, as W3C Trace Context has it
// (https://www.w3.org/TR/trace-context/):
//
//   traceparent = version "-" trace-id "-" parent-id "-" flags      lower-case hex: 2, 32, 16, 2
//
// Version ff and ids of zeros are not valid. Of a version above 00 these four fields are read,
// whatever follows behind one more "-". Of the flags only bit 0, sampled, has a meaning here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace embla {

struct TraceContext {
  static constexpr std::size_t kTextBytes = 55;

  std::uint64_t trace_high = 0;  // The first half of the trace's id.
  std::uint64_t trace_low = 0;
  std::uint64_t span = 0;  // 0: there is no trace.
  bool sampled = false;    // Whoever began the trace wants it to be kept.

  // Not set: `text` is no valid traceparent.
  static TraceContext Parse(std::string_view text);

  bool is_set() const { return span != 0; }
  // A new span of the same trace.
  TraceContext Child() const;

  // A traceparent of version 00. Requires: set.
  std::string ToString() const;
  std::string TraceId() const;

  bool operator==(const TraceContext&) const = default;
};

// Returns 16 digits, as traceparents have them.
std::string SpanIdText(std::uint64_t span);

}  // namespace embla
