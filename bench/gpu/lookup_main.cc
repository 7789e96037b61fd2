// How close do lookups on a GPU come to reading the same random rows, and to copying?
//
//   gpu_lookup_bench [--json FILE] [--rounds N] [--repeats N] [--table-mib N] [--divide N]
//                    [--only WORKLOAD] [--write-ids FOLDER]
//
// In each round, interleaved: a copy of 1 GiB, the batch's rows read and nothing else, and the
// lookups: all tables in one launch, a launch for each table, and those as a CUDA graph. Results
// are compared with the reference before anything is timed. Exit 1: a wrong result; 3: no GPU.
#include <cstdio>
#include <vector>

#include "bench/gpu/device_tables.h"
#include "bench/gpu/options.h"
#include "bench/gpu/workload_list.h"

namespace embla::bench {
namespace {

std::vector<Workload> Workloads(const GpuBenchOptions& options) {
  std::vector<Workload> all;
  const auto add = [&](Workload workload, const char* aim) {
    workload.aim = aim;
    all.push_back(workload);
  };
  add(UniformIds(options, 16, 20), "0.95 of random");
  add(UniformIds(options, 32, 20), "0.85 of copy");
  add(UniformIds(options, 64, 20), "0.90 of copy");
  add(UniformIds(options, 128, 20), "0.90 of copy");
  add(UniformIds(options, 64, 20, kernels::Element::kBFloat16), "0.85 of copy");
  add(UniformIds(options, 128, 1), "0.90 of copy");
  add(UniformIds(options, 128, 3), "0.90 of copy");
  add(UniformIds(options, 32, 1), "0.85 of copy");
  add(UniformIds(options, 128, 0), "0.90 of copy");
  add(WorkloadA(), "200 us");
  add(Step327680(), "");
  add(SmallTables(10), "5 x torch");
  add(SmallTables(100), "20 x torch");
  return all;
}

std::vector<GpuResult> Measure(const Workload& workload, const GpuBenchOptions& options,
                               const CopyCeiling& copy) {
  const DeviceTables tables(workload);
  WriteIds(options.ids_folder, workload, tables.slots(0));
  std::vector<GpuContender> contenders;
  const auto add = [&](const char* what, std::function<void(std::size_t)> look_up) {
    tables.VerifyLookup(what, look_up);
    contenders.push_back({what, std::move(look_up), LookupBytes(workload, tables.slots(0)),
                          workload.ids(), workload.aim});
  };
  add("one launch", [&](std::size_t batch) { tables.LookUp(batch, nullptr); });
  RecordedBatches by_table(
      [&](std::size_t batch, StreamHandle stream) { tables.LookUpByTable(batch, stream); });
  if (workload.tables > 1) {
    add("by table", [&](std::size_t batch) { tables.LookUpByTable(batch, nullptr); });
    add("by table, graph", [&](std::size_t batch) { by_table.Replay(batch); });
  }
  return RunGpuRounds(workload.name, {copy.kernel(), copy.driver(), tables.RandomReads()},
                      contenders, {options.rounds, options.repeats, kBatches});
}

int Main(int argc, char** argv) {
  const GpuBenchOptions options = BeginGpuBench(argc, argv);
  const CopyCeiling copy(options.copy_bytes());
  std::vector<GpuResult> results;
  for (const Workload& workload : Workloads(options)) {
    if (!options.Runs(workload)) continue;
    const auto part = Measure(Scaled(workload, options.divide), options, copy);
    results.insert(results.end(), part.begin(), part.end());
  }
  if (!ReportGpuResults(results, "lookups beside copies and random rows", options.json_file)) {
    FailWriting(options.json_file);
  }
  return 0;
}

}  // namespace
}  // namespace embla::bench

int main(int argc, char** argv) { return embla::bench::Main(argc, argv); }
