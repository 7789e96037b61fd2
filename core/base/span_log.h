// Sampled spans as lines of the log, at their ends (docs/tracing.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/base/trace_context.h"

namespace embla {

// A piece of work that has a name in a trace.
struct Span {
  TraceContext context;
  std::uint64_t parent = 0;
  std::string_view method = {};  // Not owned; outlives the span.
  absl::Time begin;

  // A new one, caused by the span of `parent`.
  static Span Under(const TraceContext& parent, std::string_view method, absl::Time begin) {
    return {.context = parent.Child(), .parent = parent.span, .method = method, .begin = begin};
  }
};

// Thread safety: every method may be called from any thread.
class SpanLog {
 public:
  // Any sender of requests may ask for lines, so there are not more of them.
  static constexpr int kLinesPerSecondMax = 1000;
  static constexpr std::size_t kErrorBytesMax = 512;

  // `component` is that of log.h; not owned, outlives the log.
  explicit SpanLog(std::string_view component) : component_(component) {}

  // Writes `what` and the span, which ends at `end` with `status`. `more` has further words
  // key=value, each with a blank before it, whose values have no blanks, quotes or "=".
  // False: the lines of this second have been written.
  bool Write(std::string_view what, const Span& span, absl::Time end, const absl::Status& status,
             std::string_view more);

 private:
  bool TakeLine(absl::Time now);

  const std::string_view component_;
  Mutex mu_;
  absl::Time second_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // When it began.
  int lines_ ABSL_GUARDED_BY(mu_) = 0;                             // Written in that second.
};

}  // namespace embla
