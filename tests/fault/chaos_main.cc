// chaos: faults without end, and nothing lost (docs/correctness.md). tests/fault/chaos.sh runs it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "tests/fault/chaos_run.h"
#include "tests/fault/failpoint_places.h"

namespace embla::fault {
namespace {

struct Flags {
  ChaosOptions run;
  bool walks = false;
  std::vector<std::string> points = {};
};

void Define(CLI::App& app, Flags& flags) {
  ChaosOptions& run = flags.run;
  app.option_defaults()->always_capture_default();
  app.add_option("--faults", run.faults, "how many")->check(CLI::Range(0, 1'000'000));
  app.add_option("--seed", run.seed, "of schedule, jobs, trainers and network");
  app.add_option("--shards", run.shards, "shard servers")->check(CLI::Range(2, 16));
  app.add_option("--devices", run.devices_per_shard, "of each shard server")
      ->check(CLI::Range(1, 8));
  app.add_option("--trainers", run.trainers, "processes with a client each")
      ->check(CLI::Range(1, 8));
  app.add_option("--lanes", run.lanes, "faults at the same time")->check(CLI::Range(1, 16));
  app.add_option("--phase", run.faults_per_phase, "faults between two judgements")
      ->check(CLI::Range(1, 1000));
  app.add_flag("!--spare-shards", run.kills_shards, "kill no shard server");
  app.add_flag("--verbose", run.is_verbose, "tell every fault when it comes");
  app.add_option("--plant", run.planted,
                 "arm shard servers with this failpoint, to see that the damage is found");
  app.add_flag("--walk", flags.walks,
               "instead of drawn faults: let processes die at every failpoint there is");
  app.add_option("--points", flags.points, "names of failpoints, with commas: --walk of these")
      ->delimiter(',');
}

// The places that the walk is to meet; empty: no walk.
absl::StatusOr<std::vector<const FailpointPlace*>> WalkOf(const Flags& flags) {
  std::vector<const FailpointPlace*> places;
  std::set<std::string> unknown(flags.points.begin(), flags.points.end());
  for (const FailpointPlace& place : FailpointPlaces()) {
    const bool is_named = std::ranges::find(flags.points, place.name) != flags.points.end();
    if (is_named) unknown.erase(place.name);
    if (is_named || (flags.walks && flags.points.empty())) places.push_back(&place);
  }
  if (unknown.empty()) return places;
  return absl::InvalidArgumentError(absl::StrCat("there is no failpoint ", *unknown.begin()));
}

int Main(const Flags& flags) {
  std::string directory = (std::filesystem::temp_directory_path() / "embla-chaos-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) {
    std::cerr << "chaos: cannot make " << directory << "\n";
    return 1;
  }
  ChaosOptions options = flags.run;
  options.directory = directory;
  const auto walk = WalkOf(flags);
  if (!walk.ok()) {
    std::cerr << "chaos: " << Message(walk.status()) << "\n";
    return 2;
  }
  options.walk = *walk;
  std::cout << "seed " << options.seed << ", logs in " << directory << std::endl;
  const ChaosReport report = ChaosRun(options).Run();
  const bool is_clean = report.findings.empty();
  if (is_clean) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  } else {
    std::cout << report.findings.size() << " findings; again: tests/fault/chaos.sh --faults "
              << options.faults << " --seed " << options.seed << " --shards " << options.shards
              << " --devices " << options.devices_per_shard << " --trainers " << options.trainers
              << " --lanes " << options.lanes << " --phase " << options.faults_per_phase
              << (options.kills_shards ? "" : " --spare-shards") << "\n";
  }
  std::cout << "faults=" << report.faults << " acked=" << report.acknowledged
            << " lost=" << report.lost << " doubled=" << report.doubled
            << " two_owners=" << report.two_owners << std::endl;
  return is_clean ? 0 : 1;
}

}  // namespace
}  // namespace embla::fault

int main(int argc, char** argv) {
  CLI::App app("Faults without end, and nothing lost", "chaos");
  embla::fault::Flags flags;
  embla::fault::Define(app, flags);
  CLI11_PARSE(app, argc, argv);
  return embla::fault::Main(flags);
}
