// The line that a sampled request leaves in the log at its end, answered or refused: where it
// belongs in its trace, what it asked for, and how long each device had it (docs/tracing.md).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/span_log.h"
#include "core/metrics/metrics.h"
#include "core/rows/device_times.h"
#include "core/rows/request.h"
#include "server/shard/shard_node.h"

namespace embla {

struct RequestTrace {
  Span span;
  SessionId session{};
  std::string asked;  // Words of the line.
  std::shared_ptr<const DeviceTimes> device_times;
};
using RequestTracePtr = std::shared_ptr<const RequestTrace>;

// Thread safety: every method may be called from any thread.
class RequestTraces {
 public:
  // `node` is not owned; outlives this object.
  RequestTraces(ShardNode& node, Counter lines_dropped)
      : node_(node), lines_dropped_(lines_dropped) {}

  // Takes a request whose session's proof is right, if it has a session. Null: it is not sampled,
  // or has no open session: strangers have no say in what is logged. Else devices measure the
  // batch.
  RequestTracePtr Begin(LookupBatch& batch, absl::Time arrived);
  RequestTracePtr Begin(UpdateBatch& batch, absl::Time arrived);

  // Bytes are message bytes.
  void End(const RequestTrace& trace, absl::Time now, const absl::Status& status,
           std::size_t request_bytes, std::size_t reply_bytes);

 private:
  template <typename Batch>
  RequestTracePtr Begin(std::string_view method, Batch& batch, absl::Time arrived);

  ShardNode& node_;  // Not owned; outlives this object.
  const Counter lines_dropped_;
  SpanLog log_{"rpc"};
};

}  // namespace embla
