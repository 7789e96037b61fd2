#include "tools/load/bench_report.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/targets.h"

namespace embla::load {
namespace {

constexpr double kGiga = 1e9;

const char* WireName(client::WireFormat wire) {
  switch (wire) {
    case client::WireFormat::kFp32:
      return "fp32";
    case client::WireFormat::kFp16:
      return "fp16";
    case client::WireFormat::kBf16:
      return "bf16";
    case client::WireFormat::kInt8:
      return "int8";
  }
  return "";
}

double Microseconds(const LatencyHistogram& latencies, double quantile) {
  return absl::ToDoubleMicroseconds(latencies.Quantile(quantile));
}

void PrintLatencies(const char* what, const LatencyHistogram& latencies, std::ostream& out) {
  if (latencies.count() == 0) return;
  out << absl::StrFormat("    %-7s  p50 %.0f us  p90 %.0f us  p99 %.0f us  p99.9 %.0f us\n", what,
                         Microseconds(latencies, 0.5), Microseconds(latencies, 0.9),
                         Microseconds(latencies, 0.99), Microseconds(latencies, 0.999));
}

void PrintResult(const CaseResult& result, std::ostream& out) {
  out << absl::StrFormat("%-28s %12.0f rows/s  %7.3f GB/s\n", result.load.name,
                         result.rows_per_second, result.bytes_per_second / kGiga);
  PrintLatencies("lookup", result.lookups, out);
  PrintLatencies("update", result.updates, out);
  out << absl::StrFormat("    CPU s per million rows: client %.3f",
                         result.client_cpu_per_million_rows);
  if (result.server_cpu_per_million_rows > 0.0) {
    out << absl::StrFormat(", servers %.3f", result.server_cpu_per_million_rows);
  }
  out << absl::StrFormat("\n    sleeps per request: client %.1f, servers %.1f\n",
                         result.client_sleeps_per_request, result.server_sleeps_per_request);
  out << absl::StrFormat("    bytes per request: %.0f sent, %.0f received\n",
                         result.bytes_sent_per_request, result.bytes_received_per_request);
  for (const CeilingResult& ceiling : result.ceilings) {
    out << absl::StrFormat("    of %-16s %6.1f %%  (%.0f rows/s)\n", ceiling.name,
                           100.0 * ceiling.ratio, ceiling.rows_per_second);
  }
  if (result.compared > 0.0) {
    out << absl::StrFormat("    %.2f x the rows/s of %s\n", result.compared,
                           result.load.compared_with);
  }
}

nlohmann::ordered_json LatenciesToJson(const LatencyHistogram& latencies) {
  if (latencies.count() == 0) return nullptr;
  return {{"count", latencies.count()},
          {"p50_us", Microseconds(latencies, 0.5)},
          {"p90_us", Microseconds(latencies, 0.9)},
          {"p99_us", Microseconds(latencies, 0.99)},
          {"p99_9_us", Microseconds(latencies, 0.999)},
          {"max_us", absl::ToDoubleMicroseconds(latencies.max())}};
}

nlohmann::ordered_json ResultToJson(const CaseResult& result) {
  const Case& load = result.load;
  nlohmann::ordered_json ceilings = nlohmann::ordered_json::object();
  for (const CeilingResult& ceiling : result.ceilings) {
    ceilings[ceiling.name] = {{"rows_per_second", ceiling.rows_per_second},
                              {"ratio", ceiling.ratio}};
  }
  nlohmann::ordered_json json = {
      {"name", load.name},
      {"update_share", load.update_share},
      {"tables", load.tables},
      {"ids", load.ids},
      {"bag", load.bag},
      {"pooled", load.pooled},
      {"dim", load.dim},
      {"wire", WireName(load.wire)},
      {"clients", load.clients},
      {"in_flight", load.in_flight},
      {"requests_per_round", load.requests},
      {"rows_per_second", result.rows_per_second},
      {"bytes_per_second", result.bytes_per_second},
      {"lookup_latency", LatenciesToJson(result.lookups)},
      {"update_latency", LatenciesToJson(result.updates)},
      {"client_cpu_seconds_per_million_rows", result.client_cpu_per_million_rows},
      {"server_cpu_seconds_per_million_rows", result.server_cpu_per_million_rows},
      {"client_sleeps_per_request", result.client_sleeps_per_request},
      {"server_sleeps_per_request", result.server_sleeps_per_request},
      {"bytes_sent_per_request", result.bytes_sent_per_request},
      {"bytes_received_per_request", result.bytes_received_per_request},
      {"ceilings", ceilings}};
  if (result.compared > 0.0) {
    json["compared_with"] = {{"name", load.compared_with}, {"ratio", result.compared}};
  }
  return json;
}

}  // namespace

std::string MachineName() {
  std::ifstream file("/proc/cpuinfo");
  std::string processor = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    processor = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  return absl::StrCat(processor, " x ", std::thread::hardware_concurrency());
}

void PrintResults(const std::vector<CaseResult>& results, std::ostream& out) {
  out << MachineName() << "\n";
  for (const CaseResult& result : results) PrintResult(result, out);
}

std::string ResultsToJson(const std::vector<CaseResult>& results, const RunSettings& settings) {
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const CaseResult& result : results) cases.push_back(ResultToJson(result));
  return nlohmann::ordered_json{{"machine", MachineName()},
                                {"commit", EMBLA_COMMIT},
                                {"kernels", kernels::ActiveTarget()},
                                {"rounds", settings.rounds},
                                {"seed", settings.seed},
                                {"distribution", settings.distribution},
                                {"table_rows", settings.tables.rows},
                                {"table_dtype", settings.tables.dtype},
                                {"sharding", settings.tables.sharding},
                                {"optimizer", settings.tables.optimizer},
                                {"cases", cases}}
      .dump(2);
}

}  // namespace embla::load
