#include "server/console/console_json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/build_version.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

using Document = nlohmann::ordered_json;

// Messages of nodes may be of any length, and of any bytes.
constexpr std::size_t kTextMax = 500;

std::string Dump(const Document& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Shortened(std::string_view text) {
  if (text.size() <= kTextMax) return std::string(text);
  return absl::StrCat(ToAbsl(text.substr(0, kTextMax)), "…");
}

Document MillisOrNull(absl::Time time) {
  if (time == absl::InfinitePast() || time == absl::UnixEpoch()) return nullptr;
  return absl::ToUnixMillis(time);
}

double Millis(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

std::string_view NameOf(NodeState state) {
  switch (state) {
    case NodeState::kLive:
      return "live";
    case NodeState::kUnlinked:
      return "unlinked";
    case NodeState::kDead:
      return "down";
  }
  return "";
}

std::string_view NameOf(JobState state) {
  switch (state) {
    case JobState::kRunning:
      return "running";
    case JobState::kPaused:
      return "paused";
    case JobState::kCancelling:
      return "cancelling";
    case JobState::kDone:
      return "done";
    case JobState::kCancelled:
      return "cancelled";
    case JobState::kFailed:
      return "failed";
    case JobState::kQueued:
      return "queued";
  }
  return "";
}

Document ToJson(const PlacedSum& placed) {
  return {{"bytes", placed.bytes}, {"rows", placed.rows}, {"slices", placed.slices}};
}

Document DevicesOf(const NodeView& node, const PlanSums& sums) {
  Document devices = Document::array();
  for (std::size_t d = 0; d < node.spec.devices.size(); ++d) {
    const DeviceSpec& spec = node.spec.devices[d];
    const auto planned = sums.devices().find(DeviceId{node.spec.id, static_cast<std::uint32_t>(d)});
    const DeviceSum sum = planned == sums.devices().end() ? DeviceSum() : planned->second;
    Document device = {{"kind", embla::NameOf(spec.kind)},
                       {"memory_bytes", spec.memory_bytes},
                       {"used_bytes", nullptr},
                       {"planned_bytes", sum.placed.bytes},
                       {"tables", sum.tables},
                       {"slices", sum.placed.slices},
                       {"busy_ratio", nullptr},
                       {"stopped", ""}};
    if (d < node.device_used_bytes.size()) device["used_bytes"] = node.device_used_bytes[d];
    if (d < node.device_stopped.size()) device["stopped"] = Shortened(node.device_stopped[d]);
    if (node.live() && d < node.load.device_busy.size()) {
      device["busy_ratio"] = node.load.device_busy[d];
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

Document ToJson(const NodeView& node, const PlanSums& sums, absl::Time now) {
  Document json = {{"id", ToInt(node.spec.id)},
                   {"name", node.spec.name},
                   {"address", node.spec.address},
                   {"state", NameOf(node.state)},
                   {"drained", node.drained},
                   {"version", Shortened(node.build.version)},
                   {"plan_version", ToInt(node.plan_version)},
                   {"failed_plan_version", ToInt(node.failed_plan_version)},
                   {"failure", ""},
                   {"silent_ms", nullptr},
                   {"devices", DevicesOf(node, sums)},
                   {"calls", Document::array()}};
  if (node.failed_plan_version != PlanVersion{}) json["failure"] = Shortened(Message(node.failure));
  if (node.last_heartbeat != absl::InfinitePast()) {
    json["silent_ms"] =
        std::max<std::int64_t>(0, absl::ToInt64Milliseconds(now - node.last_heartbeat));
  }
  if (!node.live()) return json;
  for (const CallLoad& calls : node.load.calls) {
    json["calls"].push_back({{"method", Shortened(calls.method)},
                             {"per_second", calls.per_second},
                             {"p50_ms", Millis(calls.p50)},
                             {"p99_ms", Millis(calls.p99)}});
  }
  return json;
}

Document ToJson(const JobView& view) {
  const MoveJob& job = view.job;
  return {{"id", job.id},
          {"description", Shortened(job.description)},
          {"state", NameOf(job.state)},
          {"error", Shortened(job.error)},
          {"waits_for", Shortened(view.wait.what)},
          {"units_total", view.units_total},
          {"units_moved", job.units_moved},
          {"units_open", view.units_open},
          {"units_handed_over", view.units_handed_over},
          {"bytes_total", view.bytes_total},
          {"bytes_moved", job.bytes_moved},
          {"bytes_per_second_max", job.bytes_per_second},
          {"started_unix_ms", MillisOrNull(job.started)},
          {"ended_unix_ms", MillisOrNull(job.ended)},
          {"pause_p50_ms", Millis(job.pauses.p50)},
          {"pause_p99_ms", Millis(job.pauses.p99)},
          {"pause_max_ms", Millis(job.pauses.max)},
          {"seconds_left", view.seconds_left < 0 ? Document() : Document(view.seconds_left)}};
}

Document ToJson(const SessionView& view) {
  Document json = {
      {"id", absl::StrCat(ToInt(view.session))},  // Numbers of JavaScript have 53 bits.
      {"trainer", view.trainer},
      {"rank", nullptr},
      {"ranks", view.ranks},
      {"watches", view.watches}};
  if (view.rank.has_value()) json["rank"] = ToInt(*view.rank);
  return json;
}

// [first row, rows, first column, columns, node, device]
Document ToJson(const Slice& slice) {
  return Document::array({slice.row_begin, slice.rows(), slice.column_begin, slice.columns(),
                          ToInt(slice.device.node), slice.device.index});
}

Document ToJson(const TablePlan& table, std::size_t copy, std::size_t rectangles_max) {
  const TablePicture picture = PictureOf(table, copy, rectangles_max);
  Document rectangles = Document::array();
  for (const Slice& rectangle : picture.rectangles) rectangles.push_back(ToJson(rectangle));
  return {{"copy", copy}, {"is_exact", picture.is_exact}, {"rectangles", std::move(rectangles)}};
}

Document ToJson(const TableSum& sum) {
  const TablePlan& table = *sum.table;
  const TableSpec& spec = table.spec;
  return {{"id", ToInt(spec.id)},
          {"name", spec.name},
          {"rows", spec.rows},
          {"dim", spec.dim},
          {"dtype", NameOf(spec.dtype)},
          {"optimizer", NameOf(spec.optimizer.kind)},
          {"sharding", NameOf(table.sharding)},
          {"is_zch", spec.zch.has_value()},
          {"is_synchronous", spec.sync.has_value()},
          {"is_aside", table.aside},
          {"copies", table.replicas.size()},
          {"copies_are", table.grouped()      ? "groups"
                         : table.replicated() ? "replicas"
                                              : ""},
          {"durability", NameOf(spec.durability)},
          {"row_granules", spec.row_granules},
          {"column_granules", spec.column_granules()},
          {"placed", ToJson(sum.placed)},
          {"devices", sum.devices},
          {"nodes", sum.nodes}};
}

// The columns of the run's cut.
std::uint32_t ColumnEnd(const TablePlan& table, std::uint32_t column_begin) {
  for (const Slice& slice : table.primary()) {
    if (slice.column_begin == column_begin) return slice.column_end;
  }
  return table.spec.dim;
}

Document ToJson(DeviceId device) {
  return {{"node", ToInt(device.node)}, {"device", device.index}};
}

// Null: the plan does not have the table any more.
Document ToJson(const MoveRun& run, const Plan& plan) {
  const TablePlan* const table = plan.FindTable(run.table);
  if (table == nullptr || run.granule_end > table->spec.row_granules) return nullptr;
  const std::uint32_t column = table->spec.ColumnGranuleBegin(run.column_granule);
  const std::int64_t begin = table->spec.RowGranuleBegin(run.granule_begin);
  const std::int64_t end = table->spec.RowGranuleBegin(run.granule_end);
  return {{"table", table->spec.name}, {"table_id", ToInt(run.table)},
          {"row_begin", begin},        {"rows", end - begin},
          {"column_begin", column},    {"columns", ColumnEnd(*table, column) - column},
          {"units", run.units()},      {"bytes", run.bytes},
          {"from", ToJson(run.from)},  {"to", ToJson(run.to)}};
}

// The first moves, those of `table` only if it is stated.
Document MovesOf(const JobView& view, const Plan& plan, std::optional<TableId> table) {
  Document moves = Document::array();
  for (const MoveRun& run : view.job.runs) {
    if (moves.size() == kConsoleRowsMax) break;
    if (table.has_value() && run.table != *table) continue;
    if (Document move = ToJson(run, plan); !move.is_null()) moves.push_back(std::move(move));
  }
  return moves;
}

Document ClusterJson(const ConsoleFacts& facts, absl::Time wall_clock) {
  const ClusterView& view = facts.cluster;
  return {{"id", view.cluster_id},
          {"version", BuildVersion()},
          {"plan_version", ToInt(view.plan_version)},
          {"generation", view.generation},
          {"uptime_ms", absl::ToInt64Milliseconds(facts.now - view.started)},
          {"nodes_live", view.nodes_live},
          {"nodes_total", view.nodes_total},
          {"nodes_died", view.nodes_died},
          {"tables", view.tables},
          {"tables_aside", view.tables_aside},
          {"rows_lost", view.rows_lost},
          {"time_unix_ms", absl::ToUnixMillis(wall_clock)}};
}

}  // namespace

std::string StateJson(const ConsoleFacts& facts, const PlanSums& sums, absl::Time wall_clock) {
  Document json = {{"console", 1},
                   {"role", "leader"},
                   {"cluster", ClusterJson(facts, wall_clock)},
                   {"nodes", Document::array()},
                   {"jobs", Document::array()},
                   {"sessions",
                    {{"open", facts.cluster.sessions_open},
                     {"opened", facts.cluster.sessions_opened},
                     {"closed", facts.cluster.sessions_closed},
                     {"expired", facts.cluster.sessions_expired},
                     {"first", Document::array()}}}};
  for (const NodeView& node : facts.nodes) {
    if (json["nodes"].size() == kConsoleNodesMax) break;
    json["nodes"].push_back(ToJson(node, sums, facts.now));
  }
  for (const JobView& job : facts.jobs) json["jobs"].push_back(ToJson(job));
  for (const SessionView& session : facts.sessions) {
    json["sessions"]["first"].push_back(ToJson(session));
  }
  return Dump(json);
}

std::string StandbyJson(const StandbyFacts& facts, absl::Time wall_clock) {
  return Dump(
      {{"console", 1},
       {"role", "standby"},
       {"version", BuildVersion()},
       {"time_unix_ms", absl::ToUnixMillis(wall_clock)},
       {"leader",
        {{"coordinator", facts.coordinator}, {"admin", facts.admin}, {"console", facts.console}}}});
}

std::string TablesJson(const PlanSums& sums, const TablesQuery& query) {
  Document tables = Document::array();
  std::size_t matched = 0;
  for (const TableSum& sum : sums.tables()) {
    if (!absl::StrContains(sum.table->spec.name, query.match)) continue;
    if (matched++ < query.from || tables.size() == kConsoleTablesMax) continue;
    Document table = ToJson(sum);
    table["picture"] = ToJson(*sum.table, 0, kConsoleThumbnailMax);
    tables.push_back(std::move(table));
  }
  return Dump({{"plan_version", ToInt(sums.plan()->version())},
               {"total", sums.tables().size()},
               {"matched", matched},
               {"from", query.from},
               {"page", kConsoleTablesMax},
               {"tables", std::move(tables)}});
}

absl::StatusOr<std::string> TableJson(const PlanSums& sums, TableId table, std::size_t copy,
                                      const JobView* job) {
  const TableSum* const sum = sums.Find(table);
  if (sum == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no table ", ToInt(table), " any more"));
  }
  if (copy >= sum->table->replicas.size()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", sum->table->spec.name, " has ",
                                                   sum->table->replicas.size(), " copies"));
  }
  const Plan& plan = *sums.plan();
  Document json = {{"plan_version", ToInt(plan.version())},
                   {"table", ToJson(*sum)},
                   {"picture", ToJson(*sum->table, copy, kConsoleRectanglesMax)},
                   {"devices", Document::array()},
                   {"moves", Document::array()}};
  std::vector<std::pair<DeviceId, PlacedSum>> devices;
  for (const auto& on : SumsByDevice(*sum->table)) devices.push_back(on);
  std::ranges::stable_sort(devices, {}, [](const auto& on) { return -on.second.bytes; });
  if (devices.size() > kConsoleRowsMax) devices.resize(kConsoleRowsMax);
  for (const auto& [device, placed] : devices) {
    Document on = ToJson(device);
    on["placed"] = ToJson(placed);
    json["devices"].push_back(std::move(on));
  }
  if (job != nullptr) json["moves"] = MovesOf(*job, plan, table);
  return Dump(json);
}

absl::StatusOr<std::string> DeviceJson(const Plan& plan, DeviceId device) {
  const NodeSpec* const node = plan.FindNode(device.node);
  if (node == nullptr || device.index >= node->devices.size()) {
    return absl::NotFoundError("there is no such device any more");
  }
  std::vector<TableOnDevice> found = TablesOn(plan, device);
  Document tables = Document::array();
  for (const TableOnDevice& on : found) {
    if (tables.size() == kConsoleRowsMax) break;
    tables.push_back({{"id", ToInt(on.table->spec.id)},
                      {"name", on.table->spec.name},
                      {"placed", ToJson(on.placed)}});
  }
  return Dump({{"plan_version", ToInt(plan.version())},
               {"total", found.size()},
               {"tables", std::move(tables)}});
}

std::string JobJson(const JobView& job, const Plan& plan) {
  return Dump({{"job", ToJson(job)},
               {"moves_total", job.job.runs.size() + job.job.copies.size()},
               {"moves", MovesOf(job, plan, std::nullopt)}});
}

std::string AuditJson(std::string_view lines) {
  std::vector<Document> found;
  for (const absl::string_view text : absl::StrSplit(ToAbsl(lines), '\n', absl::SkipEmpty())) {
    const Document line = Document::parse(text.begin(), text.end(), nullptr, false);
    if (!line.is_object()) continue;
    const auto text_of = [&](const char* name) {
      const auto field = line.find(name);
      return field != line.end() && field->is_string() ? Shortened(field->get<std::string>()) : "";
    };
    Document shown = {{"time", text_of("time")},
                      {"who", text_of("who")},
                      {"peer", text_of("peer")},
                      {"method", text_of("method")},
                      {"result", text_of("result")},
                      {"message", text_of("message")},
                      {"what", ""},
                      {"job", nullptr}};
    if (line.contains("what")) shown["what"] = Shortened(Dump(line["what"]));
    if (line.contains("job") && line["job"].is_number()) shown["job"] = line["job"];
    found.push_back(std::move(shown));
  }
  if (found.size() > kConsoleRowsMax) {
    found.erase(found.begin(), found.end() - kConsoleRowsMax);
  }
  std::ranges::reverse(found);
  return Dump({{"calls", std::move(found)}});
}

}  // namespace embla
