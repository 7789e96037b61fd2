#include "tools/load/bench_run.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/load/memory_ceiling.h"
#include "tools/load/process_use.h"
#include "tools/load/runner.h"

namespace embla::load {
namespace {

constexpr std::int64_t kMemoryCeilingBytesMax = std::int64_t{1} << 30;
constexpr std::size_t kMemoryCeilingIds = std::size_t{1} << 17;
constexpr double kMillion = 1e6;

double CountOf(Metrics& metrics, const MetricInfo& info) {
  return metrics.MakeCounter(info, {"Lookup"}).value() +
         metrics.MakeCounter(info, {"Update"}).value();
}

double Median(std::vector<double> values) {
  EMBLA_CHECK(!values.empty());
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// One case with all that its rounds need and gather.
class CaseRun {
 public:
  static absl::StatusOr<std::unique_ptr<CaseRun>> Prepare(const Case& load,
                                                          const RunSettings& settings,
                                                          BenchTables& tables,
                                                          RunEnvironment& environment) {
    EMBLA_RETURN_IF_ERROR(Annotate(load.Validate(), "case " + load.name));
    EMBLA_ASSIGN_OR_RETURN(std::vector<std::string> names, tables.Ensure(load.tables, load.dim));
    EMBLA_ASSIGN_OR_RETURN(const IdDistribution distribution,
                           IdDistribution::Parse(settings.distribution, settings.tables.rows));
    std::unique_ptr<CaseRun> run(new CaseRun(
        load, RequestSet(load, std::move(names), distribution, settings.seed), environment));
    if (load.only_lookups()) {
      run->memory_ = std::make_unique<MemoryCeiling>(distribution, settings.tables.rows, load.dim,
                                                     kMemoryCeilingBytesMax);
    }
    for (client::Client* client : environment.clients) {
      EMBLA_RETURN_IF_ERROR(client->RefreshPlan());
    }
    EMBLA_RETURN_IF_ERROR(Annotate(VerifyCase(load, run->requests_, *environment.clients.front()),
                                   "case " + load.name));
    run->runner_ = std::make_unique<Runner>(
        load, std::span(environment.clients).first(load.clients), run->requests_, settings.seed);
    // Warms connections, buffers and page tables.
    EMBLA_RETURN_IF_ERROR(run->runner_->Run(load.requests).status());
    return run;
  }

  absl::Status RunRound() {
    const ProcessUse client = UseOfThisProcess();
    const ProcessUse servers = UseOf(environment_.server_processes);
    const double sent = BytesSent();
    const double received = BytesReceived();
    EMBLA_ASSIGN_OR_RETURN(const RoundResult round, runner_->Run(load_.requests));
    bytes_sent_ += BytesSent() - sent;
    bytes_received_ += BytesReceived() - received;
    client_ += UseOfThisProcess() - client;
    servers_ += UseOf(environment_.server_processes) - servers;
    requests_done_ += round.requests;
    lookups_.Merge(round.lookups);
    updates_.Merge(round.updates);
    rates_.push_back(static_cast<double>(round.requests) / round.seconds);
    return MeasureCeilings();
  }

  CaseResult Result() const {
    const auto rows = static_cast<double>(load_.rows_per_request());
    CaseResult result;
    result.load = load_;
    result.rows_per_second = Median(rates_) * rows;
    result.bytes_per_second = Median(rates_) * static_cast<double>(load_.PayloadBytes());
    result.lookups = lookups_;
    result.updates = updates_;
    const double millions = static_cast<double>(requests_done_) * rows / kMillion;
    result.client_cpu_per_million_rows = client_.cpu_seconds / millions;
    result.server_cpu_per_million_rows = servers_.cpu_seconds / millions;
    const auto requests = static_cast<double>(requests_done_);
    result.client_sleeps_per_request = client_.sleeps / requests;
    result.server_sleeps_per_request = servers_.sleeps / requests;
    result.bytes_sent_per_request = bytes_sent_ / requests;
    result.bytes_received_per_request = bytes_received_ / requests;
    for (const Beside& beside : beside_) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < rates_.size(); ++i) ratios.push_back(rates_[i] / beside.rates[i]);
      result.ceilings.push_back({beside.name, Median(beside.rates) * rows, Median(ratios)});
    }
    return result;
  }

 private:
  struct Beside {
    std::string name;
    std::vector<double> rates;  // Requests per second, one per round.
  };

  CaseRun(const Case& load, RequestSet requests, RunEnvironment& environment)
      : load_(load), requests_(std::move(requests)), environment_(environment) {}

  double BytesSent() const {
    return CountOf(environment_.metrics, MetricNamed("embla_client_sent_bytes_total"));
  }
  double BytesReceived() const {
    return CountOf(environment_.metrics, MetricNamed("embla_client_received_bytes_total"));
  }

  absl::Status MeasureCeilings() {
    if (memory_ != nullptr) {
      const auto rows = static_cast<double>(load_.rows_per_request());
      Record("memory", memory_->Run(kMemoryCeilingIds) / rows);
    }
    const bool comparable = load_.clients == 1 && (load_.only_lookups() || load_.only_updates());
    if (environment_.ceilings == nullptr || !comparable) return absl::OkStatus();
    EMBLA_ASSIGN_OR_RETURN(const auto rates, environment_.ceilings->Measure(load_));
    for (const auto& rate : rates) Record(rate.name, rate.requests_per_second);
    return absl::OkStatus();
  }

  void Record(const std::string& name, double rate) {
    auto found = std::ranges::find(beside_, name, &Beside::name);
    if (found == beside_.end()) found = beside_.insert(found, Beside{name, {}});
    found->rates.push_back(rate);
  }

  const Case load_;
  const RequestSet requests_;
  RunEnvironment& environment_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<MemoryCeiling> memory_;  // Lookups only.
  std::vector<double> rates_;              // Requests per second, one per round.
  std::vector<Beside> beside_;
  LatencyHistogram lookups_;
  LatencyHistogram updates_;
  std::int64_t requests_done_ = 0;
  ProcessUse client_;
  ProcessUse servers_;
  double bytes_sent_ = 0.0;
  double bytes_received_ = 0.0;
};

void CompareCases(std::vector<CaseResult>& results) {
  for (CaseResult& result : results) {
    for (const CaseResult& other : results) {
      if (other.load.name != result.load.compared_with) continue;
      result.compared = result.rows_per_second / other.rows_per_second;
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<CaseResult>> RunCases(const std::vector<Case>& cases,
                                                 const RunSettings& settings,
                                                 RunEnvironment& environment) {
  BenchTables tables(settings.tables, environment.admin, *environment.clients.front());
  std::vector<std::unique_ptr<CaseRun>> runs;
  for (const Case& load : cases) {
    EMBLA_ASSIGN_OR_RETURN(auto run, CaseRun::Prepare(load, settings, tables, environment));
    environment.log << "verified " << load.name << "\n";
    runs.push_back(std::move(run));
  }
  for (int round = 1; round <= settings.rounds; ++round) {
    for (const auto& run : runs) EMBLA_RETURN_IF_ERROR(run->RunRound());
    environment.log << absl::StrFormat("round %d of %d\n", round, settings.rounds);
  }
  std::vector<CaseResult> results;
  results.reserve(runs.size());
  for (const auto& run : runs) results.push_back(run->Result());
  CompareCases(results);
  return results;
}

}  // namespace embla::load
