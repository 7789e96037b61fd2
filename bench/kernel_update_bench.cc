// How close do optimizer steps come to reading and writing the same rows? Ratio to the best
// read-modify-write of the same rows of weights and state in the same round (every word + 1,
// prefetch 0..64 rows), same pages, one thread, fp32. The steps also read the gradients.
//
//   kernel_update_bench [-o json] [--mib N] [--rounds N]
//
// Weights and state together have N MiB (1024) on huge pages. Batches of ascending slots.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/memory/random_rows.h"
#include "bench/memory/rounds.h"
#include "core/base/memory_arena.h"
#include "kernels/optimizer_step.h"
#include "server/storage/prefetch_tuner.h"

namespace embla::bench {
namespace {

// Summed gradients of a batch, as the server steps them (server/table/update_share.cc): they stay
// in the second-level cache.
constexpr std::size_t kBatchBytes = std::size_t{256} << 10;

struct Options {
  bool json = false;
  std::size_t mib = 1024;
  int rounds = 9;
};

class UpdateBench {
 public:
  UpdateBench(OptimizerKind rule, std::uint32_t dim, std::size_t bytes)
      : dim_(dim),
        batch_(kBatchBytes / (dim * sizeof(float))),
        element_floats_(kernels::ElementStateArrays(rule) * std::size_t{dim}),
        row_floats_(kernels::RowStateFloats(rule)),
        table_rows_(static_cast<std::uint32_t>(
            bytes / (sizeof(float) * (dim + element_floats_ + row_floats_)))),
        gradients_(batch_ * dim, 0.01f) {
    parameters_.rule = rule;
    weights_ = MapFloats(dim);
    element_state_ = MapFloats(element_floats_);
    row_state_ = MapFloats(row_floats_);
    rows_.weights = {weights_.data(), dim * sizeof(float), dim, kernels::Element::kFloat32};
    rows_.row_state = reinterpret_cast<float*>(row_state_.data());
    rows_.element_state = reinterpret_cast<float*>(element_state_.data());
    rows_.dim = dim;
    arrays_.push_back({weights_.data(), dim * sizeof(float), dim * sizeof(float)});
    for (const auto& [arena, floats] :
         {std::pair{&row_state_, row_floats_}, std::pair{&element_state_, element_floats_}}) {
      if (floats == 0) continue;
      arrays_.push_back({arena->data(), floats * sizeof(float), floats * sizeof(float)});
    }
  }

  // A first step from zeros with g = 0.01 moves every weight by lr * g, or by about lr.
  void Verify() {
    const std::uint32_t slots[] = {1, table_rows_ - 1};
    Step(slots);
    const float moved = parameters_.rule == OptimizerKind::kSgd ? 0.0001f : 0.01f;
    for (const std::uint32_t slot : slots) {
      const auto* const w =
          reinterpret_cast<const float*>(weights_.data()) + std::size_t{slot} * dim_;
      for (std::uint32_t c = 0; c < dim_; ++c) {
        if (std::fabs(w[c] + moved) < 1e-4f * moved) continue;
        std::fprintf(stderr, "%s: wrong result\n",
                     std::string(TraitsOf(parameters_.rule).name).c_str());
        std::exit(1);
      }
    }
  }

  std::vector<RoundsResult> Run(const Options& options) {
    // Words + 1 moves a float by one ulp. From 1 on that is harmless; from 0 it would be denormal.
    for (const RowArray& array : arrays_) {
      std::fill_n(reinterpret_cast<float*>(array.base), table_rows_ * array.row_bytes / 4, 1.0f);
    }
    std::vector<Contender> contenders;
    for (const std::size_t distance : kCeilingPrefetchRows) {
      contenders.push_back(
          {std::string(TraitsOf(parameters_.rule).name) + " rows, prefetch " +
               std::to_string(distance),
           true, "update", [this, distance](auto slots) {
             ForBatches(slots, [&](auto batch) { IncrementRows(arrays_, batch, distance); });
           }});
    }
    contenders.push_back(
        {std::string(TraitsOf(parameters_.rule).name), false, "update",
         [this](auto slots) { ForBatches(slots, [&](auto batch) { Step(batch); }); }});
    RoundsOptions rounds;
    rounds.rounds = options.rounds;
    rounds.table_rows = table_rows_;
    rounds.rows_per_round = std::size_t{1} << 17;
    rounds.batch = batch_;
    rounds.sorted = true;
    for (const RowArray& array : arrays_) rounds.bytes_per_row += 2 * array.row_bytes;
    return RunRounds("dim:" + std::to_string(dim_), contenders, rounds);
  }

 private:
  MemoryArena MapFloats(std::size_t floats_per_row) const {
    auto arena = MemoryArena::Map(table_rows_ * floats_per_row * sizeof(float));
    if (!arena.ok()) {
      std::fprintf(stderr, "cannot map the table\n");
      std::exit(2);
    }
    return *std::move(arena);
  }
  template <typename Work>
  void ForBatches(std::span<const std::uint32_t> slots, const Work& work) const {
    for (std::size_t begin = 0; begin < slots.size(); begin += batch_) {
      work(slots.subspan(begin, std::min(batch_, slots.size() - begin)));
    }
  }
  void Step(std::span<const std::uint32_t> slots) {
    prefetch_.Run(slots.size(), [&](kernels::PrefetchTuning tuning) {
      kernels::Step(parameters_, rows_, {slots, gradients_.data(), dim_, nullptr, 1}, tuning);
    });
  }

  const std::uint32_t dim_;
  const std::size_t batch_;  // Rows.
  const std::size_t element_floats_;
  const std::size_t row_floats_;
  const std::uint32_t table_rows_;
  std::vector<float> gradients_;
  kernels::StepParameters parameters_;
  kernels::StepRows rows_;
  MemoryArena weights_;
  MemoryArena element_state_;
  MemoryArena row_state_;
  std::vector<RowArray> arrays_;
  PrefetchTuner prefetch_;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "-o") options.json = std::string(value) == "json";
    if (arg == "--mib") options.mib = std::strtoul(value, nullptr, 10);
    if (arg == "--rounds") options.rounds = std::atoi(value);
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.mib < 16 || options.rounds < 1) {
    std::fprintf(stderr, "--mib from 16, --rounds from 1\n");
    return 2;
  }
  std::vector<RoundsResult> results;
  for (const OptimizerKind rule : kOptimizerKinds) {
    for (const std::uint32_t dim : {16u, 64u, 128u}) {
      UpdateBench bench(rule, dim, options.mib << 20);
      bench.Verify();
      const auto part = bench.Run(options);
      results.insert(results.end(), part.begin(), part.end());
    }
  }
  PrintResults(results, options.json, "optimizer steps against reading and writing the same rows");
  return 0;
}

}  // namespace
}  // namespace embla::bench

int main(int argc, char** argv) { return embla::bench::Main(argc, argv); }
