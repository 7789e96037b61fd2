// How close do lookups come to reading the same random rows? Pooled sums are divided by the best
// random-row read of the same round (XOR of all words), unpooled rows by the best random-row copy
// into the same buffer; both with prefetch 0..64 rows, same pages, one thread, fp32.
//
//   kernel_lookup_bench [-o json] [--mib N] [--rounds N] [--tune]
//
// The table has N MiB (1024) on huge pages. gather: unpooled rows in batches of 4096 into a reused
// buffer. pool-20: sums of bags of 20 ids. --tune adds a line for each prefetch distance.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bench/memory/random_rows.h"
#include "bench/memory/rounds.h"
#include "core/base/memory_arena.h"
#include "kernels/initialize.h"
#include "kernels/lookup.h"
#include "server/storage/prefetch_tuner.h"

namespace embla::bench {
namespace {

constexpr std::size_t kBatch = 4096;
constexpr std::uint32_t kBagLength = 20;

struct Options {
  bool json = false;
  bool tune = false;
  std::size_t mib = 1024;
  int rounds = 9;
};

class LookupBench {
 public:
  LookupBench(std::byte* base, std::size_t bytes, std::uint32_t dim)
      : rows_{base, dim * sizeof(float), dim, kernels::Element::kFloat32},
        array_{base, dim * sizeof(float), dim * sizeof(float)},
        table_rows_(static_cast<std::uint32_t>(bytes / (dim * sizeof(float)))),
        lengths_(kBatch / kBagLength, kBagLength),
        out_(kBatch * dim) {
    kernels::Initialize({kernels::InitRule::kUniform, -1.0f, 1.0f, 7},
                        {{base, rows_.stride_bytes, dim, rows_.element}, 0, 0}, 0, table_rows_);
  }

  // Exits when a kernel's answer is wrong.
  void Verify() {
    std::vector<std::uint32_t> slots(kBagLength);
    for (std::uint32_t i = 0; i < kBagLength; ++i) slots[i] = (i * 7919u) % table_rows_;
    Pool(slots, nullptr);
    for (std::uint32_t c = 0; c < rows_.columns; ++c) {
      float sum = 0.0f;
      for (const std::uint32_t slot : slots) sum += Row(slot)[c];
      if (sum != out_[c]) Fail("pool");
    }
    Gather(slots, nullptr);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (std::memcmp(&out_[i * rows_.columns], Row(slots[i]), rows_.stride_bytes) != 0) {
        Fail("gather");
      }
    }
  }

  std::vector<RoundsResult> Run(const Options& options) {
    std::vector<Contender> contenders;
    for (const std::size_t distance : kCeilingPrefetchRows) {
      const std::string suffix = ", prefetch " + std::to_string(distance);
      contenders.push_back({"random read" + suffix, true, "read", [this, distance](auto slots) {
                              checksum_ = checksum_ ^ XorRows(array_, slots, distance);
                            }});
      contenders.push_back({"random copy" + suffix, true, "copy",
                            [this, distance](auto slots) { Copy(slots, distance); }});
    }
    contenders.push_back({"pool-20", false, "read", [this](auto slots) { Pool(slots, nullptr); }});
    contenders.push_back({"gather", false, "copy", [this](auto slots) { Gather(slots, nullptr); }});
    for (const std::uint32_t distance : PrefetchTuner::kDistances) {
      if (options.tune) AddKernels(distance, contenders);
    }
    RoundsOptions rounds;
    rounds.rounds = options.rounds;
    rounds.table_rows = table_rows_;
    rounds.bytes_per_row = array_.row_bytes;
    rounds.rows_per_round = lengths_.size() * kBagLength * 32;
    return RunRounds("dim:" + std::to_string(rows_.columns), contenders, rounds);
  }

 private:
  void AddKernels(std::uint32_t distance, std::vector<Contender>& contenders) {
    const std::string suffix = ", prefetch " + std::to_string(distance);
    const kernels::PrefetchTuning fixed{distance};
    contenders.push_back(
        {"pool-20" + suffix, false, "read", [this, fixed](auto slots) { Pool(slots, &fixed); }});
    contenders.push_back(
        {"gather" + suffix, false, "copy", [this, fixed](auto slots) { Gather(slots, &fixed); }});
  }
  const float* Row(std::uint32_t slot) const {
    return static_cast<const float*>(rows_.base) + std::size_t{slot} * rows_.columns;
  }
  static void Fail(const char* what) {
    std::fprintf(stderr, "%s: wrong result\n", what);
    std::exit(1);
  }
  // `fixed` null: the tuner chooses, as in a store.
  void Gather(std::span<const std::uint32_t> slots, const kernels::PrefetchTuning* fixed) {
    const kernels::Output out{out_.data(), rows_.stride_bytes, rows_.element};
    for (std::size_t begin = 0; begin < slots.size(); begin += kBatch) {
      const auto batch = slots.subspan(begin, std::min(kBatch, slots.size() - begin));
      if (fixed != nullptr) {
        kernels::Gather(rows_, batch, out, *fixed);
        continue;
      }
      gather_prefetch_.Run(batch.size(), [&](kernels::PrefetchTuning tuning) {
        kernels::Gather(rows_, batch, out, tuning);
      });
    }
  }
  void Copy(std::span<const std::uint32_t> slots, std::size_t distance) {
    for (std::size_t begin = 0; begin < slots.size(); begin += kBatch) {
      const auto batch = slots.subspan(begin, std::min(kBatch, slots.size() - begin));
      CopyRows(array_, batch, reinterpret_cast<std::byte*>(out_.data()), distance);
    }
  }
  void Pool(std::span<const std::uint32_t> slots, const kernels::PrefetchTuning* fixed) {
    const std::size_t ids = lengths_.size() * kBagLength;
    const kernels::Output out{out_.data(), rows_.stride_bytes, rows_.element};
    for (std::size_t begin = 0; begin < slots.size(); begin += ids) {
      const auto batch = slots.subspan(begin, std::min(ids, slots.size() - begin));
      const auto bags = std::span<const std::uint32_t>(lengths_).first(batch.size() / kBagLength);
      if (fixed != nullptr) {
        kernels::Pool(rows_, {batch, bags, nullptr}, out, *fixed);
        continue;
      }
      pool_prefetch_.Run(batch.size(), [&](kernels::PrefetchTuning tuning) {
        kernels::Pool(rows_, {batch, bags, nullptr}, out, tuning);
      });
    }
  }

  kernels::Rows rows_;
  RowArray array_;
  std::uint32_t table_rows_;
  std::vector<std::uint32_t> lengths_;
  std::vector<float> out_;
  PrefetchTuner gather_prefetch_;
  PrefetchTuner pool_prefetch_;
  volatile std::uint32_t checksum_ = 0;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "-o") options.json = std::string(value) == "json";
    if (arg == "--mib") options.mib = std::strtoul(value, nullptr, 10);
    if (arg == "--rounds") options.rounds = std::atoi(value);
    if (arg == "--tune") options.tune = true;
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const std::size_t bytes = options.mib << 20;
  const auto arena = MemoryArena::Map(bytes);
  if (!arena.ok() || bytes == 0 || options.rounds < 1) {
    std::fprintf(stderr, "cannot use a table of %zu MiB\n", options.mib);
    return 2;
  }
  std::vector<RoundsResult> results;
  for (const std::uint32_t dim : {16u, 64u, 128u}) {
    LookupBench bench(arena->data(), bytes, dim);
    bench.Verify();
    const auto part = bench.Run(options);
    results.insert(results.end(), part.begin(), part.end());
  }
  PrintResults(results, options.json, "lookups against random-row reads");
  return 0;
}

}  // namespace
}  // namespace embla::bench

int main(int argc, char** argv) { return embla::bench::Main(argc, argv); }
