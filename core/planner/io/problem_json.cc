#include "core/planner/io/problem_json.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/io/table_json.h"
#include "core/planner/io/topology_json.h"
#include "core/planner/problem/names.h"

namespace embla::planner {
namespace {

absl::Status ReadReservation(const Document& json, Reservation* reservation) {
  Fields fields(json, "reservation");
  std::string kind;
  fields.Text("kind", &kind);
  if (kind == "fixed") {
    reservation->kind = Reservation::Kind::kFixed;
  } else if (kind == "heuristical") {
    reservation->kind = Reservation::Kind::kHeuristical;
  } else if (!kind.empty()) {
    fields.Fail("kind", "is neither fixed nor heuristical");
  }
  fields.Number("fraction", &reservation->fraction);
  fields.Bytes("dense_bytes", &reservation->dense_bytes);
  return fields.Finish();
}

// "auto" is 0.
void ReadReplicas(Fields& fields, std::uint32_t* replicas) {
  const Document& value = fields.Any("replicas");
  if (value.is_string() && value.get<std::string>() == "auto") {
    *replicas = 0;
  } else {
    fields.Integer("replicas", 0, static_cast<std::uint32_t>(kDevicesMax), replicas);
  }
}

// The device of this name and all devices of a host of this name.
std::vector<Device*> DevicesCalled(Topology& topology, const std::string& name) {
  std::vector<Device*> found;
  for (Host& host : topology.hosts) {
    for (std::size_t i = 0; i < host.devices.size(); ++i) {
      if (host.name == name || absl::StrCat(host.name, ":", i) == name) {
        found.push_back(&host.devices[i]);
      }
    }
  }
  return found;
}

// Only what differs from the defaults: the text stays short.
template <typename T>
void Put(Document& json, const char* name, const T& value, const T& usual) {
  if (value != usual) json[name] = value;
}

template <typename Enum>
Document NamesOf(const std::vector<Enum>& values) {
  Document names = Document::array();
  for (const Enum value : values) names.push_back(NameOf(value));
  return names;
}

Document RulesToJson(const TableRules& rules) {
  Document json = Document::object();
  if (!rules.types.empty()) json["types"] = NamesOf(rules.types);
  if (!rules.kernels.empty()) json["kernels"] = NamesOf(rules.kernels);
  Put(json, "hosts", rules.hosts, {});
  Put(json, "devices", rules.devices, {});
  Put(json, "groups", rules.groups, {});
  Put(json, "pin", rules.pin, {});
  Put(json, "min_partition", rules.min_partition, 0u);
  if (rules.spread != Spread::kAny) json["spread"] = NameOf(rules.spread);
  return json;
}

Document TableToJson(const Table& table) {
  const Table usual;
  Document json = {{"name", table.name}, {"rows", table.rows}, {"dim", table.dim}};
  json["lookups"] = table.lookups_per_sample;
  Put(json, "poolings", table.bags_per_sample, usual.bags_per_sample);
  Put(json, "element_bytes", table.element_bytes, usual.element_bytes);
  Put(json, "wire_bytes", table.wire_bytes, usual.wire_bytes);
  Put(json, "slot_bytes", table.slot_bytes, usual.slot_bytes);
  if (table.optimizer != usual.optimizer) json["optimizer"] = NameOf(table.optimizer);
  Put(json, "weighted", table.weighted, usual.weighted);
  Put(json, "pooled", table.pooled, usual.pooled);
  Put(json, "measured_factor", table.measured_factor, usual.measured_factor);
  Document frequency = Document::array();
  for (const auto& [rows, lookups] : table.frequency) {
    frequency.push_back(Document::array({rows, lookups}));
  }
  if (!frequency.empty()) json["frequency"] = std::move(frequency);
  Document rules = RulesToJson(table.rules);
  if (!rules.empty()) json["rules"] = std::move(rules);
  return json;
}

Document HostToJson(const Host& host) {
  Document devices = Document::array();
  for (const Device& device : host.devices) {
    Document one = {{"memory", device.memory_bytes}};
    Put(one, "slowdown", device.slowdown, 1.0);
    Put(one, "group", device.group, {});
    devices.push_back(std::move(one));
  }
  return {{"name", host.name},
          {"devices", std::move(devices)},
          {"memory", host.memory_bytes},
          {"ssd", host.ssd_bytes}};
}

Document TopologyToJson(const Topology& topology) {
  Document hosts = Document::array();
  for (const Host& host : topology.hosts) hosts.push_back(HostToJson(host));
  const Bandwidths& b = topology.bandwidth;
  return {{"hosts", std::move(hosts)},
          {"bandwidth",
           {{"device_memory", b.device_memory},
            {"host_memory", b.host_memory},
            {"host_to_device", b.host_to_device},
            {"intra_host", b.intra_host},
            {"inter_host", b.inter_host},
            {"ssd", b.ssd}}}};
}

}  // namespace

absl::Status ReadProblem(const Document& json, Problem* problem) {
  if (json.is_array()) {
    EMBLA_ASSIGN_OR_RETURN(problem->tables, TablesFromJson(json));
    return absl::OkStatus();
  }
  Fields fields(json, "problem");
  const Document& tables = fields.Any("tables");
  const Document& topology = fields.Any("topology");
  const Document& constraints = fields.Any("constraints");
  const Document& reservation = fields.Object("reservation");
  const Document& calibration = fields.Object("calibration");
  fields.Word("cost", &CostKindFromName, &problem->cost);
  fields.Number("batch", &problem->local_batch);
  fields.Word("pipeline", &PipelineFromName, &problem->pipeline);
  fields.Number("cache_fraction", &problem->cache_fraction);
  fields.Integer("min_partition", 0, kDimMax, &problem->min_partition);
  fields.Bool("all_widths", &problem->all_widths);
  ReadReplicas(fields, &problem->replicas);
  fields.Number("sync_period_steps", &problem->sync_period_steps);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  if (!tables.is_null()) {
    EMBLA_ASSIGN_OR_RETURN(problem->tables, TablesFromJson(tables));
  }
  if (!topology.is_null()) {
    EMBLA_ASSIGN_OR_RETURN(problem->topology, TopologyFromJson(topology));
  }
  if (!constraints.is_null()) {
    EMBLA_RETURN_IF_ERROR(ApplyConstraints(constraints, &problem->tables));
  }
  EMBLA_RETURN_IF_ERROR(ReadReservation(reservation, &problem->reservation));
  return ApplyCalibration(calibration, problem);
}

absl::Status ApplyCalibration(const Document& json, Problem* problem) {
  Fields fields(json, "calibration");
  const Document& tables = fields.Object("tables");
  const Document& devices = fields.Object("devices");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  for (const auto& item : tables.items()) {
    const auto it = std::find_if(problem->tables.begin(), problem->tables.end(),
                                 [&](const Table& table) { return table.name == item.key(); });
    if (it == problem->tables.end() || !item.value().is_number()) {
      return absl::InvalidArgumentError(absl::StrCat("calibration, tables, \"", item.key(),
                                                     "\": no such table, or not a number"));
    }
    it->measured_factor = item.value().get<double>();
  }
  for (const auto& item : devices.items()) {
    const std::vector<Device*> found = DevicesCalled(problem->topology, item.key());
    if (found.empty() || !item.value().is_number()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "calibration, devices, \"", item.key(), "\": no such device or host, or not a number"));
    }
    for (Device* device : found) device->slowdown = item.value().get<double>();
  }
  return absl::OkStatus();
}

Document ProblemToJson(const Problem& problem) {
  Document tables = Document::array();
  for (const Table& table : problem.tables) tables.push_back(TableToJson(table));
  const Reservation& reservation = problem.reservation;
  return {
      {"cost", NameOf(problem.cost)},
      {"batch", problem.local_batch},
      {"pipeline", NameOf(problem.pipeline)},
      {"cache_fraction", problem.cache_fraction},
      {"min_partition", problem.min_partition},
      {"all_widths", problem.all_widths},
      {"replicas", problem.replicas},
      {"sync_period_steps", problem.sync_period_steps},
      {"reservation",
       {{"kind", reservation.kind == Reservation::Kind::kFixed ? "fixed" : "heuristical"},
        {"fraction", reservation.fraction},
        {"dense_bytes", reservation.dense_bytes}}},
      {"topology", TopologyToJson(problem.topology)},
      {"tables", std::move(tables)},
  };
}

}  // namespace embla::planner
