#include "server/rpc/request_trace.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/shard/session_gate.h"

namespace embla {
namespace {

constexpr std::size_t kTablesNamedMax = 8;

// The batch's tables, and how many ids it has of them.
template <typename Batch>
std::string Asked(const Plan& plan, const Batch& batch) {
  std::vector<TableId> tables;
  for (const auto& part : batch.parts) {
    const bool is_named = std::ranges::find(tables, part.table) != tables.end();
    if (!is_named && tables.size() <= kTablesNamedMax) tables.push_back(part.table);
  }
  std::string asked;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    absl::StrAppend(&asked, i == 0 ? " tables=" : ",");
    if (i == kTablesNamedMax) {
      absl::StrAppend(&asked, "...");
    } else if (const TablePlan* const table = plan.FindTable(tables[i]); table != nullptr) {
      absl::StrAppend(&asked, table->spec.name);
    } else {
      absl::StrAppend(&asked, ToInt(tables[i]));
    }
  }
  absl::StrAppend(&asked, " rows=", RowsOf(batch));
  return asked;
}

// Nothing for a request that no device has had.
std::string DeviceWords(std::vector<DeviceTimes::Time> times) {
  if (times.empty()) return "";
  std::ranges::sort(times, {}, &DeviceTimes::Time::device);
  const auto first = std::ranges::min_element(times, {}, &DeviceTimes::Time::waited);
  std::string words =
      absl::StrFormat(" queue_seconds=%.6f device_seconds=", absl::ToDoubleSeconds(first->waited));
  for (const DeviceTimes::Time& time : times) {
    absl::StrAppendFormat(&words, "%s%d:%.6f", &time == &times.front() ? "" : ",", time.device,
                          absl::ToDoubleSeconds(time.worked));
  }
  return words;
}

}  // namespace

RequestTracePtr RequestTraces::Begin(LookupBatch& batch, absl::Time arrived) {
  return Begin("Lookup", batch, arrived);
}

RequestTracePtr RequestTraces::Begin(UpdateBatch& batch, absl::Time arrived) {
  return Begin("Update", batch, arrived);
}

template <typename Batch>
RequestTracePtr RequestTraces::Begin(std::string_view method, Batch& batch, absl::Time arrived) {
  if (!batch.trace.is_set() || !batch.trace.sampled) return nullptr;
  if (batch.session == SessionId{} || node_.sessions().IsClosed(batch.session)) return nullptr;
  batch.device_times = std::make_shared<DeviceTimes>();
  return std::make_shared<const RequestTrace>(
      RequestTrace{.span = Span::Under(batch.trace, method, arrived),
                   .session = batch.session,
                   .asked = Asked(*node_.plan(), batch),
                   .device_times = batch.device_times});
}

void RequestTraces::End(const RequestTrace& trace, absl::Time now, const absl::Status& status,
                        std::size_t request_bytes, std::size_t reply_bytes) {
  const std::string words =
      absl::StrCat(" session=", ToInt(trace.session), trace.asked, " request_bytes=", request_bytes,
                   " reply_bytes=", reply_bytes, DeviceWords(trace.device_times->times()));
  if (!log_.Write("traced request", trace.span, now, status, words)) lines_dropped_.Add();
}

}  // namespace embla
