#include "core/base/span_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/log.h"
#include "core/base/text.h"

namespace embla {

bool SpanLog::Write(std::string_view what, const Span& span, absl::Time end,
                    const absl::Status& status, std::string_view more) {
  if (!TakeLine(end)) return false;
  LogInfo(component_, ToAbsl(what), " trace_id=", span.context.TraceId(),
          " span_id=", SpanIdText(span.context.span), " parent_id=", SpanIdText(span.parent),
          " method=", ToAbsl(span.method), " status=", absl::StatusCodeToString(status.code()),
          " begin_unix_us=", absl::ToUnixMicros(span.begin),
          " seconds=", absl::StrFormat("%.6f", absl::ToDoubleSeconds(end - span.begin)),
          ToAbsl(more), status.ok() ? "" : " error=", status.message().substr(0, kErrorBytesMax));
  return true;
}

bool SpanLog::TakeLine(absl::Time now) {
  MutexLock lock(mu_);
  if (now < second_ || now - second_ >= absl::Seconds(1)) {
    second_ = now;
    lines_ = 0;
  }
  return ++lines_ <= kLinesPerSecondMax;
}

}  // namespace embla
