#include "server/rpc/coordinator_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/build_version.h"
#include "core/base/clock.h"
#include "core/base/log_level.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/plan_json.h"
#include "core/planner/placement_json.h"
#include "core/wire/plan_codec.h"
#include "core/wire/status_codec.h"

namespace embla {
namespace {

// Limits for reports of nodes that are for people: another build may have more methods.
constexpr std::size_t kMethodsMax = 16;
constexpr std::size_t kMethodNameMax = 64;
constexpr std::size_t kTablesMax = 32;
constexpr std::size_t kTableNameMax = 256;

std::int64_t UnixMillisOrZero(absl::Time time) {
  return time == absl::InfinitePast() ? 0 : absl::ToUnixMillis(time);
}

// Heartbeats and the status of nodes have the same fields.
template <typename Message>
void AddTraffic(const NodeLoad& load, Message& message) {
  for (const CallLoad& calls : load.calls) {
    v1::CallLoad& out = *message.add_calls();
    out.set_method(calls.method);
    out.set_per_second(calls.per_second);
    out.set_p50_ms(absl::ToDoubleMilliseconds(calls.p50));
    out.set_p99_ms(absl::ToDoubleMilliseconds(calls.p99));
  }
  for (const TableLoad& table : load.tables) {
    v1::TableLoad& out = *message.add_tables();
    out.set_table(table.table);
    out.set_rows_looked_up(table.rows_looked_up);
    out.set_rows_updated(table.rows_updated);
  }
}

using SessionRanges = google::protobuf::RepeatedPtrField<v1::SessionRange>;

void ToMessage(const SessionSet& sessions, SessionRanges& out) {
  for (const auto& [first, last] : sessions.ranges()) {
    v1::SessionRange& range = *out.Add();
    range.set_first(ToInt(first));
    range.set_last(ToInt(last));
  }
}

absl::StatusOr<SessionSet> FromMessage(const SessionRanges& message) {
  std::vector<SessionSet::Range> ranges;
  for (const v1::SessionRange& range : message) {
    ranges.emplace_back(SessionId{range.first()}, SessionId{range.last()});
  }
  return SessionSet::FromRanges(std::move(ranges));
}

}  // namespace

v1::LogLevel ToMessage(LogLevel level) {
  return static_cast<v1::LogLevel>(static_cast<int>(level) + v1::LOG_LEVEL_INFO);
}

std::optional<LogLevel> FromMessage(v1::LogLevel message) {
  if (message < v1::LOG_LEVEL_INFO || message > v1::LOG_LEVEL_ERROR) return std::nullopt;
  return static_cast<LogLevel>(message - v1::LOG_LEVEL_INFO);
}

v1::ClosedSessions ToMessage(const SessionNews& news) {
  v1::ClosedSessions message;
  message.set_number(news.number);
  ToMessage(news.closed.refused, *message.mutable_refused());
  ToMessage(news.closed.settled, *message.mutable_settled());
  return message;
}

absl::StatusOr<SessionNews> FromMessage(const v1::ClosedSessions& message) {
  SessionNews news;
  news.number = message.number();
  EMBLA_ASSIGN_OR_RETURN(news.closed.refused, FromMessage(message.refused()));
  EMBLA_ASSIGN_OR_RETURN(news.closed.settled, FromMessage(message.settled()));
  return news;
}

namespace {

void ToMessage(const NodePast& past, v1::NodePast& out) {
  out.set_directory_id(past.directory_id);
  out.set_node_id(ToInt(past.node));
  out.set_generation(past.generation);
  out.set_plan_version(ToInt(past.plan_version));
  out.set_table_id(ToInt(past.table));
  out.set_store_revision(ToInt(past.store_revision));
  out.set_log_position(past.log_position);
  out.set_process(past.process);
}

NodePast FromMessage(const v1::NodePast& message) {
  return {.directory_id = message.directory_id(),
          .node = NodeId{message.node_id()},
          .generation = message.generation(),
          .plan_version = PlanVersion{message.plan_version()},
          .table = TableId{message.table_id()},
          .store_revision = Revision{message.store_revision()},
          .log_position = message.log_position(),
          .process = message.process()};
}

void ToMessage(const UnitStandings& units, v1::UnitStandings& out) {
  out.set_table_id(ToInt(units.table));
  out.set_column_granule(units.column_granule);
  out.set_granule_begin(units.granule_begin);
  out.set_granule_end(units.granule_end);
  out.set_state(static_cast<v1::UnitStandings::State>(units.standing.state));
  out.set_epoch(ToInt(units.standing.epoch));
  out.set_last_move(ToInt(units.standing.last_move));
  out.set_device(units.device);
  out.set_other(ToInt(units.standing.other));
}

absl::StatusOr<UnitStandings> FromMessage(const v1::UnitStandings& message) {
  if (message.state() < v1::UnitStandings::STATE_OWNED ||
      message.state() > v1::UnitStandings::STATE_ELSEWHERE) {
    return absl::InvalidArgumentError(absl::StrCat("units of table ", message.table_id(),
                                                   " have the unknown state ",
                                                   static_cast<int>(message.state())));
  }
  return UnitStandings{.table = TableId{message.table_id()},
                       .column_granule = message.column_granule(),
                       .granule_begin = message.granule_begin(),
                       .granule_end = message.granule_end(),
                       .standing = {.state = static_cast<UnitStanding::State>(message.state()),
                                    .epoch = UnitEpoch{message.epoch()},
                                    .last_move = MoveId{message.last_move()},
                                    .other = NodeId{message.other()}},
                       .device = message.device()};
}

}  // namespace

v1::Registration ToMessage(const NodeRegistration& registration) {
  v1::Registration message;
  message.set_name(registration.name);
  message.set_address(registration.address);
  message.set_boot_id(registration.boot_id);
  message.set_cluster_id(registration.cluster_id);
  ToMessage(registration.sessions_refused, *message.mutable_sessions_refused());
  for (const DeviceSpec& device : registration.devices) {
    v1::Device& out = *message.add_devices();
    out.set_kind(static_cast<v1::Device::Kind>(device.kind));
    out.set_memory_bytes(device.memory_bytes);
    out.set_memory_bytes_per_second(device.memory_bytes_per_second);
    out.set_peer_access(device.peer_access);
  }
  ToMessage(registration.past, *message.mutable_past());
  message.set_accept_loss(registration.accept_loss);
  message.set_version(registration.build.version);
  message.set_protocol_version(registration.build.protocol_version);
  message.set_testimony(registration.testimony);
  message.mutable_host_memory()->set_id(registration.host_memory.id);
  message.mutable_host_memory()->set_bytes(registration.host_memory.bytes);
  if (registration.installed != nullptr) {
    *message.mutable_installed() = wire::ToMessage(DeltaBetween(Plan(), *registration.installed));
  }
  for (const UnitStandings& units : registration.units) ToMessage(units, *message.add_units());
  return message;
}

absl::StatusOr<NodeRegistration> FromMessage(const v1::Registration& message) {
  NodeRegistration registration;
  registration.name = message.name();
  registration.address = message.address();
  registration.boot_id = message.boot_id();
  registration.cluster_id = message.cluster_id();
  EMBLA_ASSIGN_OR_RETURN(registration.sessions_refused, FromMessage(message.sessions_refused()));
  for (const v1::Device& device : message.devices()) {
    if (device.kind() != v1::Device::KIND_CPU && device.kind() != v1::Device::KIND_GPU) {
      return absl::InvalidArgumentError(absl::StrCat("device ", registration.devices.size(),
                                                     " has unknown kind ",
                                                     static_cast<int>(device.kind())));
    }
    registration.devices.push_back(
        {.kind = static_cast<DeviceKind>(device.kind()),
         .memory_bytes = device.memory_bytes(),
         .memory_bytes_per_second = std::max<std::int64_t>(device.memory_bytes_per_second(), 0),
         .peer_access = device.peer_access()});
  }
  registration.past = FromMessage(message.past());
  registration.accept_loss = message.accept_loss();
  registration.build = {message.version(), message.protocol_version()};
  registration.testimony = message.testimony();
  registration.host_memory = {message.host_memory().id(), message.host_memory().bytes()};
  if (message.has_installed()) {
    EMBLA_ASSIGN_OR_RETURN(registration.installed, wire::ApplyMessage(message.installed(), Plan()));
  }
  for (const v1::UnitStandings& units : message.units()) {
    EMBLA_ASSIGN_OR_RETURN(registration.units.emplace_back(), FromMessage(units));
  }
  return registration;
}

v1::Heartbeat ToMessage(const HeartbeatInfo& info) {
  v1::Heartbeat message;
  message.set_plan_version(ToInt(info.plan_version));
  message.set_failed_plan_version(ToInt(info.failed_plan_version));
  if (!info.failure.ok()) {
    message.set_failure_code(static_cast<std::int32_t>(info.failure.code()));
    message.set_failure_message(wire::StatusMessage(info.failure));
  }
  message.set_sessions_heard(info.sessions_heard);
  message.set_log_position(info.log_position);
  for (std::size_t d = 0; d < info.device_used_bytes.size(); ++d) {
    v1::DeviceUse& device = *message.add_devices();
    device.set_used_bytes(info.device_used_bytes[d]);
    if (d < info.device_stopped.size()) device.set_stopped(info.device_stopped[d]);
    if (d < info.load.device_busy.size()) device.set_busy_ratio(info.load.device_busy[d]);
  }
  AddTraffic(info.load, message);
  if (info.log_level.has_value()) message.set_log_level(ToMessage(*info.log_level));
  for (const StepReport& report : info.steps) {
    v1::TableSteps& steps = *message.add_steps();
    steps.set_table_id(ToInt(report.table));
    steps.set_change(report.change);
    steps.set_first_unmade(report.first_unmade);
    steps.set_lack_step(report.step);
    for (const Rank rank : report.lacks) steps.add_lack_ranks(ToInt(rank));
  }
  return message;
}

HeartbeatInfo FromMessage(const v1::Heartbeat& message) {
  HeartbeatInfo info;
  info.plan_version = PlanVersion{message.plan_version()};
  info.failed_plan_version = PlanVersion{message.failed_plan_version()};
  info.sessions_heard = message.sessions_heard();
  info.log_position = message.log_position();
  info.failure = wire::StatusFromCode(message.failure_code(), message.failure_message());
  for (const v1::DeviceUse& device : message.devices()) {
    info.device_used_bytes.push_back(device.used_bytes());
    info.device_stopped.push_back(device.stopped());
    if (device.has_busy_ratio()) info.load.device_busy.push_back(device.busy_ratio());
  }
  for (const v1::CallLoad& calls : message.calls()) {
    if (info.load.calls.size() == kMethodsMax) break;
    info.load.calls.push_back({.method = calls.method().substr(0, kMethodNameMax),
                               .per_second = calls.per_second(),
                               .p50 = absl::Milliseconds(calls.p50_ms()),
                               .p99 = absl::Milliseconds(calls.p99_ms())});
  }
  for (const v1::TableLoad& table : message.tables()) {
    if (info.load.tables.size() == kTablesMax) break;
    info.load.tables.push_back({.table = table.table().substr(0, kTableNameMax),
                                .rows_looked_up = table.rows_looked_up(),
                                .rows_updated = table.rows_updated()});
  }
  info.log_level = FromMessage(message.log_level());
  for (const v1::TableSteps& steps : message.steps()) {
    StepReport& report = info.steps.emplace_back();
    report.table = TableId{steps.table_id()};
    report.change = steps.change();
    report.first_unmade = steps.first_unmade();
    report.step = steps.lack_step();
    for (const std::uint32_t rank : steps.lack_ranks()) report.lacks.push_back(Rank{rank});
  }
  return info;
}

v1::NodeStatus ToMessage(const NodeView& node) {
  v1::NodeStatus message;
  message.set_node_json(NodeSpecToJson(node.spec));
  message.set_live(node.live());
  message.set_plan_version(ToInt(node.plan_version));
  message.set_last_heartbeat_unix_ms(UnixMillisOrZero(node.last_heartbeat));
  message.set_drained(node.drained);
  message.set_version(node.build.version);
  message.set_protocol_version(node.build.protocol_version);
  for (const std::int64_t bytes : node.device_used_bytes) message.add_device_used_bytes(bytes);
  for (const std::string& stopped : node.device_stopped) message.add_device_stopped(stopped);
  message.set_memory_id(node.host_memory.id);
  message.set_memory_bytes(node.host_memory.bytes);
  if (node.keeps_rows.has_value()) {
    message.set_directory(*node.keeps_rows ? v1::NodeStatus::DIRECTORY_KEPT
                                           : v1::NodeStatus::DIRECTORY_NONE);
  }
  if (node.clock_ahead.has_value()) {
    message.set_clock_ahead_ms(absl::ToInt64Milliseconds(*node.clock_ahead));
  }
  if (node.log_level.has_value()) message.set_log_level(ToMessage(*node.log_level));
  if (node.live()) {
    AddTraffic(node.load, message);
    for (const double busy : node.load.device_busy) message.add_device_busy(busy);
  }
  if (node.failed_plan_version != PlanVersion{}) {
    message.set_failed_plan_version(ToInt(node.failed_plan_version));
    message.set_failure(wire::StatusMessage(node.failure));
    message.set_failing_since_unix_ms(UnixMillisOrZero(node.failing_since));
  }
  return message;
}

v1::ClusterStatus ToMessage(const ClusterView& view) {
  v1::ClusterStatus message;
  message.set_cluster_id(view.cluster_id);
  message.set_plan_version(ToInt(view.plan_version));
  message.set_nodes_live(view.nodes_live);
  message.set_nodes_total(view.nodes_total);
  message.set_tables(view.tables);
  message.set_started_unix_ms(UnixMillisOrZero(view.started));
  message.set_version(std::string(BuildVersion()));
  message.set_generation(view.generation);
  message.set_tables_aside(view.tables_aside);
  message.set_protocol_version(kProtocolVersion);
  message.set_now_unix_ms(absl::ToUnixMillis(absl::Now()));
  message.set_log_level(ToMessage(CurrentLogLevel()));
  return message;
}

absl::StatusOr<planner::TableToPlace> TableFromJson(std::string_view table_json,
                                                    std::string_view placement_json) {
  planner::TableToPlace table;
  absl::StatusOr<TableSpec> spec = TableSpecFromJson(table_json);
  if (!spec.ok()) return Annotate(spec.status(), "table_json");
  table.spec = *std::move(spec);
  if (placement_json.empty()) return table;
  absl::StatusOr<PlacementRequest> placement = PlacementRequestFromJson(placement_json);
  if (!placement.ok()) return Annotate(placement.status(), "placement_json");
  table.request = *std::move(placement);
  return table;
}

v1::TableReply ToMessage(const TablePlan& table, PlanVersion plan_version) {
  v1::TableReply message;
  message.set_table_plan_json(TablePlanToJson(table));
  message.set_plan_version(ToInt(plan_version));
  return message;
}

v1::PlanChange ToMessage(const PlanChange& change) {
  v1::PlanChange message;
  message.set_version(ToInt(change.version));
  message.set_unix_ms(absl::ToUnixMillis(change.at));
  message.set_cause(change.cause);
  return message;
}

planner::ProblemDigest FromMessage(const v1::PlanInputs& message) {
  return {.tables = message.tables(),
          .topology = message.topology(),
          .rules = message.rules(),
          .options = message.options()};
}

}  // namespace embla
