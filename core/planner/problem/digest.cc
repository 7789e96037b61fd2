// PlanHash, DigestOf: canonical bytes of a plan and of its inputs.
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/planner/problem/sha256.h"
#include "core/planner/problem/solution.h"

namespace embla::planner {
namespace {

constexpr std::string_view kVersion = "embla-planner-1";

// Values as little-endian 64-bit words, texts with their length in front: no two inputs share
// bytes.
class Writer {
 public:
  Writer() { Text(kVersion); }

  template <typename T>
  void Value(T value) {
    std::uint64_t word;
    if constexpr (std::is_floating_point_v<T>) {
      word = std::bit_cast<std::uint64_t>(static_cast<double>(value));
    } else {
      word = static_cast<std::uint64_t>(value);
    }
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(word >> (8 * i));
    hash_.Add(std::string_view(bytes, 8));
  }
  template <typename... T>
  void Values(T... values) {
    (Value(values), ...);
  }
  void Text(std::string_view text) {
    Value(text.size());
    hash_.Add(text);
  }
  void Texts(const std::vector<std::string>& texts) {
    Value(texts.size());
    for (const std::string& text : texts) Text(text);
  }
  std::string Finish() { return hash_.Finish(); }

 private:
  Sha256 hash_;
};

}  // namespace

std::string PlanHash(const Problem& canonical, const Solution& solution) {
  Writer writer;
  writer.Value(solution.choices.size());
  for (std::size_t t = 0; t < solution.choices.size(); ++t) {
    const Choice& choice = solution.choices[t];
    writer.Text(canonical.tables[t].name);
    writer.Values(static_cast<int>(choice.cut.type), static_cast<int>(choice.cut.kernel),
                  choice.cut.width, choice.cut.column_blocks, choice.cut.row_blocks,
                  static_cast<int>(choice.placement), choice.targets.size());
    for (const std::uint32_t target : choice.targets) writer.Value(target);
  }
  return writer.Finish();
}

ProblemDigest DigestOf(const Problem& canonical) {
  Writer tables, rules, topology, options;
  for (const Table& table : canonical.tables) {
    tables.Text(table.name);
    tables.Values(table.rows, table.dim, table.element_bytes, table.wire_bytes,
                  static_cast<int>(table.optimizer), table.lookups_per_sample,
                  table.bags_per_sample, table.weighted, table.pooled, table.measured_factor,
                  table.frequency.size());
    for (const auto& [x, y] : table.frequency) tables.Values(x, y);
    if (table.slot_bytes != 0) tables.Values(table.slot_bytes);
    const TableRules& r = table.rules;
    rules.Text(table.name);
    rules.Value(r.types.size());
    for (const ShardingType type : r.types) rules.Value(static_cast<int>(type));
    rules.Value(r.kernels.size());
    for (const Kernel kernel : r.kernels) rules.Value(static_cast<int>(kernel));
    rules.Texts(r.hosts);
    rules.Texts(r.devices);
    rules.Texts(r.groups);
    rules.Text(r.pin);
    rules.Values(r.min_partition, static_cast<int>(r.spread));
  }
  for (const Host& host : canonical.topology.hosts) {
    topology.Text(host.name);
    topology.Values(host.memory_bytes, host.ssd_bytes, host.devices.size());
    for (const Device& device : host.devices) {
      topology.Values(device.memory_bytes, device.slowdown);
      topology.Text(device.group);
    }
  }
  const Bandwidths& b = canonical.topology.bandwidth;
  topology.Values(b.device_memory, b.host_memory, b.host_to_device, b.intra_host, b.inter_host,
                  b.ssd);
  options.Values(static_cast<int>(canonical.cost), canonical.local_batch,
                 static_cast<int>(canonical.reservation.kind), canonical.reservation.fraction,
                 canonical.reservation.dense_bytes, static_cast<int>(canonical.pipeline),
                 canonical.cache_fraction, canonical.min_partition, canonical.all_widths,
                 canonical.replicas, canonical.sync_period_steps);
  return {tables.Finish(), topology.Finish(), rules.Finish(), options.Finish()};
}

std::string FirstDifference(const ProblemDigest& a, const ProblemDigest& b) {
  if (a.tables != b.tables) return "tables";
  if (a.topology != b.topology) return "topology";
  if (a.rules != b.rules) return "rules";
  if (a.options != b.options) return "options";
  return "";
}

}  // namespace embla::planner
