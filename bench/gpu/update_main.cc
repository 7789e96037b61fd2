// How close do updates on a GPU come to reading and writing the same random rows, and to copying?
//
//   gpu_update_bench [--json FILE] [--rounds N] [--repeats N] [--table-mib N] [--divide N]
//                    [--only WORKLOAD] [--write-ids FOLDER]
//
// An update is all from slots to stepped rows: sort, sums of duplicates, optimizer step. In each
// round, interleaved: a copy of 1 GiB, the touched rows and their state read and written and
// nothing else, and the updates: all tables as one, table by table, and as a CUDA graph. Results
// are compared with the reference before anything is timed. Exit 1: a wrong result; 3: no GPU.
#include <cstdio>
#include <vector>

#include "bench/gpu/device_updates.h"
#include "bench/gpu/options.h"
#include "bench/gpu/workload_list.h"

namespace embla::bench {
namespace {

struct UpdateCase {
  Workload workload;
  OptimizerKind rule;
  const char* rule_name;
};

std::vector<UpdateCase> Cases(const GpuBenchOptions& options) {
  std::vector<UpdateCase> all;
  const auto add = [&](Workload workload, OptimizerKind rule, const char* name, const char* aim) {
    workload.aim = aim;
    all.push_back({workload, rule, name});
  };
  const Workload uniform = UniformIds(options, 128, 0);
  add(UniformIds(options, 16, 0), OptimizerKind::kRowwiseAdagrad, "rowwise adagrad", "");
  add(uniform, OptimizerKind::kRowwiseAdagrad, "rowwise adagrad", "");
  Workload hot = uniform;
  hot.name += "_hot50";
  hot.hot_share = 0.5;
  add(hot, OptimizerKind::kRowwiseAdagrad, "rowwise adagrad", "1.5 x uniform's us");
  add(WorkloadA(), OptimizerKind::kSgd, "sgd", "300 us");
  add(WorkloadA(), OptimizerKind::kRowwiseAdagrad, "rowwise adagrad", "");
  add(WorkloadA(), OptimizerKind::kAdam, "adam", "500 us");
  add(Step327680(), OptimizerKind::kSgd, "sgd", "with lookup 160 us");
  add(SmallTables(10), OptimizerKind::kSgd, "sgd", "5 x torch");
  add(SmallTables(100), OptimizerKind::kSgd, "sgd", "20 x torch");
  return all;
}

std::vector<GpuResult> Measure(const UpdateCase& c, const GpuBenchOptions& options,
                               const CopyCeiling& copy) {
  DeviceUpdates updates(c.workload, c.rule);
  const DeviceTables& tables = updates.tables();
  WriteIds(options.ids_folder, c.workload, tables.slots(0));
  const MovedBytes bytes = UpdateBytes(c.workload, c.rule, tables.slots(0));
  MovedBytes step_bytes = bytes;
  step_bytes += LookupBytes(c.workload, tables.slots(0));
  std::vector<GpuContender> contenders;
  const auto add = [&](const std::string& what, const MovedBytes& moved,
                       std::function<void(std::size_t)> update) {
    const std::string name = c.rule_name + (", " + what);
    updates.VerifyUpdate(name, update);
    contenders.push_back({name, std::move(update), moved, c.workload.ids(), c.workload.aim});
  };
  RecordedBatches graph(
      [&](std::size_t batch, StreamHandle stream) { updates.Update(batch, stream); });
  RecordedBatches by_table(
      [&](std::size_t batch, StreamHandle stream) { updates.UpdateByTable(batch, stream); });
  RecordedBatches step([&](std::size_t batch, StreamHandle stream) {
    tables.LookUp(batch, stream);
    updates.Update(batch, stream);
  });
  add("as one", bytes, [&](std::size_t batch) { updates.Update(batch, nullptr); });
  add("graph", bytes, [&](std::size_t batch) { graph.Replay(batch); });
  if (c.workload.tables > 1) {
    add("by table", bytes, [&](std::size_t batch) { updates.UpdateByTable(batch, nullptr); });
    add("by table, graph", bytes, [&](std::size_t batch) { by_table.Replay(batch); });
  }
  add("with lookup, graph", step_bytes, [&](std::size_t batch) { step.Replay(batch); });
  return RunGpuRounds(c.workload.name, {copy.kernel(), copy.driver(), updates.RandomUpdates()},
                      contenders, {options.rounds, options.repeats, kBatches});
}

int Main(int argc, char** argv) {
  const GpuBenchOptions options = BeginGpuBench(argc, argv);
  const CopyCeiling copy(options.copy_bytes());
  std::vector<GpuResult> results;
  for (UpdateCase& c : Cases(options)) {
    if (!options.Runs(c.workload)) continue;
    c.workload = Scaled(c.workload, options.divide);
    const auto part = Measure(c, options, copy);
    results.insert(results.end(), part.begin(), part.end());
  }
  if (!ReportGpuResults(results, "updates beside copies and random rows", options.json_file)) {
    FailWriting(options.json_file);
  }
  return 0;
}

}  // namespace
}  // namespace embla::bench

int main(int argc, char** argv) { return embla::bench::Main(argc, argv); }
