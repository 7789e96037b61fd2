#include "core/planner/io/topology_json.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::planner {
namespace {

bool ParseWord(std::string_view text, std::int64_t* hosts, std::int64_t* devices) {
  const std::size_t x = text.find('x');
  return x != std::string_view::npos && absl::SimpleAtoi(ToAbsl(text.substr(0, x)), hosts) &&
         absl::SimpleAtoi(ToAbsl(text.substr(x + 1)), devices);
}

// Four digits, so that names sort as numbers do.
std::string NumberedName(const std::string& prefix, std::int64_t number) {
  return absl::StrFormat("%s%04d", prefix, number);
}

void ReadDevice(Fields& fields, Device* device) {
  fields.Bytes("memory", &device->memory_bytes);
  fields.Number("slowdown", &device->slowdown);
  fields.Text("group", &device->group);
}

// The devices of one host: a number of equal ones, or a list.
absl::Status ReadDevices(Fields& fields, const Device& usual, std::vector<Device>* devices) {
  const Document& list = fields.Any("devices");
  if (!list.is_array()) {
    std::int64_t count = 0;
    fields.Need("devices");
    fields.Integer("devices", 1, kDevicesMax, &count);
    devices->assign(static_cast<std::size_t>(count), usual);
    return absl::OkStatus();
  }
  if (list.size() > kDevicesMax) return absl::InvalidArgumentError("too many devices");
  for (const Document& item : list) {
    Device device = usual;
    Fields one(item, absl::StrCat("device ", devices->size()));
    ReadDevice(one, &device);
    EMBLA_RETURN_IF_ERROR(one.Finish());
    devices->push_back(std::move(device));
  }
  return absl::OkStatus();
}

absl::Status ReadHost(const Document& json, std::vector<Host>* hosts) {
  Fields fields(json, "host");
  Host host;
  std::int64_t count = 0;
  Device usual;
  usual.memory_bytes = TopologyDefaults{}.device_bytes;
  fields.Need("name");
  fields.Text("name", &host.name);
  fields.Integer("count", 1, kDevicesMax, &count);
  fields.Bytes("device_memory", &usual.memory_bytes);
  fields.Number("slowdown", &usual.slowdown);
  fields.Text("group", &usual.group);
  EMBLA_RETURN_IF_ERROR(ReadDevices(fields, usual, &host.devices));
  host.memory_bytes =
      TopologyDefaults{}.host_bytes_per_device * static_cast<std::int64_t>(host.devices.size());
  fields.Bytes("memory", &host.memory_bytes);
  fields.Bytes("ssd", &host.ssd_bytes);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  const auto devices = static_cast<std::int64_t>(host.devices.size());
  if (devices * std::max<std::int64_t>(1, count) > kDevicesMax) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kDevicesMax, " devices"));
  }
  if (count == 0) {
    hosts->push_back(std::move(host));
    return absl::OkStatus();
  }
  const std::string prefix = host.name;
  for (std::int64_t i = 0; i < count; ++i) {
    host.name = NumberedName(prefix, i);
    hosts->push_back(host);
  }
  return absl::OkStatus();
}

absl::Status ReadBandwidths(const Document& json, Bandwidths* bandwidth) {
  Fields fields(json, "bandwidth");
  fields.Number("device_memory", &bandwidth->device_memory);
  fields.Number("host_memory", &bandwidth->host_memory);
  fields.Number("host_to_device", &bandwidth->host_to_device);
  fields.Number("intra_host", &bandwidth->intra_host);
  fields.Number("inter_host", &bandwidth->inter_host);
  fields.Number("ssd", &bandwidth->ssd);
  return fields.Finish();
}

}  // namespace

bool IsTopologyWord(std::string_view text) {
  std::int64_t hosts = 0, devices = 0;
  return ParseWord(text, &hosts, &devices);
}

absl::StatusOr<Topology> TopologyFromWord(std::string_view word, const TopologyDefaults& defaults) {
  std::int64_t hosts = 0, devices = 0;
  if (!ParseWord(word, &hosts, &devices) || hosts < 1 || devices < 1 || hosts > kDevicesMax ||
      devices > kDevicesMax || hosts * devices > kDevicesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "topology '", ToAbsl(word.substr(0, 64)),
        "' is not <hosts>x<devices per host>, as 2x8, of at most ", kDevicesMax, " devices"));
  }
  Topology topology;
  for (std::int64_t h = 0; h < hosts; ++h) {
    Host host{NumberedName("h", h), {}, defaults.host_bytes_per_device * devices, 0};
    host.devices.assign(static_cast<std::size_t>(devices), Device{defaults.device_bytes, 1.0, ""});
    topology.hosts.push_back(std::move(host));
  }
  return topology;
}

absl::StatusOr<Topology> TopologyFromJson(const Document& json) {
  if (json.is_string()) return TopologyFromWord(json.get<std::string>());
  Fields fields(json, "topology");
  Topology topology;
  fields.Need("hosts");
  const Document& hosts = fields.Array("hosts");
  const Document& bandwidth = fields.Object("bandwidth");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  std::int64_t devices = 0;
  for (const Document& host : hosts) {
    const std::size_t before = topology.hosts.size();
    EMBLA_RETURN_IF_ERROR(
        Annotate(ReadHost(host, &topology.hosts), absl::StrCat("topology, hosts[", before, "]")));
    for (std::size_t h = before; h < topology.hosts.size(); ++h) {
      devices += static_cast<std::int64_t>(topology.hosts[h].devices.size());
    }
    if (devices > kDevicesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("topology has more than ", kDevicesMax, " devices"));
    }
  }
  EMBLA_RETURN_IF_ERROR(Annotate(ReadBandwidths(bandwidth, &topology.bandwidth), "topology"));
  return topology;
}

}  // namespace embla::planner
