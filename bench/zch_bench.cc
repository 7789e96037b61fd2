// How fast does the slot map find ids, and replace them? In ratios to reading one random word per
// id from memory of about the same size (the best of prefetch 0..64), and to absl::flat_hash_map
// doing the same on the same ids; one thread, rounds interleaved.
//
//   zch_bench [-o json] [--slots N] [--rounds N]
//
// The map has N slots (16 Mi) in 768 buckets at load 0.8, policy LRU. find: read-only, batches of
// 4096. find and touch: the first phase of a training step. insert and evict: batches of new ids
// into a full map. absl's insert erases its oldest id, which is known, and keeps no policy.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bench/memory/random_rows.h"
#include "bench/memory/rounds.h"
#include "core/base/memory_arena.h"
#include "server/zch/slot_map.h"

namespace embla::bench {
namespace {

constexpr std::size_t kBatch = 4096;
constexpr std::size_t kBytesPerId = 24;  // Bytes of the ceiling's array; the map has 21 a slot.

struct Options {
  bool json = false;
  std::int64_t slots = std::int64_t{1} << 24;
  int rounds = 9;
};

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

// Distinct for distinct numbers, and nothing like consecutive.
RowId IdOf(std::uint64_t number) {
  return RowId{static_cast<std::int64_t>(number * 0x9e3779b97f4a7c15u)};
}

std::unique_ptr<zch::SlotMap> MakeMap(std::int64_t slots) {
  zch::SlotMapOptions options;
  options.capacity = slots;
  auto map = zch::SlotMap::Create(options);
  if (!map.ok()) Fail("cannot make the slot map");
  (*map)->AddAllBuckets();
  return *std::move(map);
}

class ZchBench {
 public:
  explicit ZchBench(std::int64_t slots)
      : found_(MakeMap(slots)),
        full_(MakeMap(slots)),
        ids_count_(static_cast<std::uint32_t>(found_->options().slots() / 5 * 4)),
        ids_(kBatch),
        slots_(kBatch),
        outcomes_(kBatch) {
    auto arena = MemoryArena::Map(ids_count_ * kBytesPerId);
    if (!arena.ok()) Fail("cannot map the array of the ceiling");
    arena_ = *std::move(arena);
    std::fill_n(reinterpret_cast<std::uint8_t*>(arena_.data()), arena_.size(), std::uint8_t{3});
    known_.reserve(ids_count_);
    Fill(*found_, 0, ids_count_);
    for (std::uint32_t k = 0; k < ids_count_; ++k) known_[ToInt(IdOf(k))] = k;
    queue_ = known_;
    // Until the fullest group and the emptiest one are both full.
    next_ = 2 * static_cast<std::uint64_t>(full_->options().slots());
    Fill(*full_, 0, next_);
    if (full_->TakeSurvey(0).occupancy() < 0.999) Fail("the full map is not full");
    next_known_ = ids_count_;
  }

  // Exits when an answer is wrong.
  void Verify() {
    std::vector<std::uint32_t> numbers(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) numbers[i] = (i * 7919u) % ids_count_;
    Find(numbers);
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (slots_[i] != found_->Explain(IdOf(numbers[i])).slot) Fail("find: wrong slot");
    }
    const auto survey = found_->TakeSurvey(0);
    if (static_cast<double>(survey.residents) < 0.99 * ids_count_) Fail("too many ids evicted");
    const std::uint64_t inserts = full_->statistics().inserts;
    Replace(numbers);
    if (full_->statistics().inserts != inserts + kBatch) Fail("insert: not inserted");
    if (answer_.evictions.size() < kBatch * 0.99) Fail("insert: not evicted");
  }

  std::vector<RoundsResult> Run(int rounds) {
    std::vector<Contender> contenders;
    const RowArray array{arena_.data(), kBytesPerId, sizeof(std::uint32_t)};
    for (const std::size_t distance : kCeilingPrefetchRows) {
      contenders.push_back({"random read, prefetch " + std::to_string(distance), true, "read",
                            [this, array, distance](auto numbers) {
                              checksum_ = checksum_ ^ XorRows(array, numbers, distance);
                            }});
    }
    const auto add = [&](const char* name, void (ZchBench::*run)(std::span<const std::uint32_t>)) {
      contenders.push_back({name, false, "read", [this, run](auto numbers) {
                              for (std::size_t at = 0; at < numbers.size(); at += kBatch) {
                                (this->*run)(numbers.subspan(at, kBatch));
                              }
                            }});
    };
    add("zch find", &ZchBench::Find);
    add("zch find and touch", &ZchBench::FindAndTouch);
    add("zch insert and evict", &ZchBench::Replace);
    add("absl find", &ZchBench::FindInAbsl);
    add("absl find, prefetch 16", &ZchBench::FindInAbslAhead);
    add("absl insert and erase", &ZchBench::ReplaceInAbsl);
    RoundsOptions options;
    options.rounds = rounds;
    options.table_rows = ids_count_;
    options.bytes_per_row = sizeof(std::uint32_t);
    options.batch = kBatch;
    return RunRounds("slots:" + std::to_string(found_->options().slots()), contenders, options);
  }

 private:
  void Fill(zch::SlotMap& map, std::uint64_t begin, std::uint64_t end) {
    std::vector<RowId> ids;
    for (std::uint64_t step = 1; begin < end; ++step) {
      ids.clear();
      for (; ids.size() < kBatch * 16 && begin < end; ++begin) ids.push_back(IdOf(begin));
      map.Apply({ids, {}, {}, {step, 0}}, answer_);
    }
    step_ = std::max<std::uint64_t>(step_, end);
  }
  void SetIds(std::span<const std::uint32_t> numbers) {
    for (std::size_t i = 0; i < kBatch; ++i) ids_[i] = IdOf(numbers[i]);
  }

  void Find(std::span<const std::uint32_t> numbers) {
    SetIds(numbers);
    found_->Find(ids_, slots_, outcomes_);
  }
  void FindAndTouch(std::span<const std::uint32_t> numbers) {
    // The few ids that found no room at load 0.8 are left out, or they would drive others out.
    Find(numbers);
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (!zch::OwnsSlot(outcomes_[i])) ids_[i] = ids_[0];
    }
    found_->Apply({ids_, {}, {}, {++step_, 0}}, answer_);
  }
  void Replace(std::span<const std::uint32_t>) {
    for (RowId& id : ids_) id = IdOf(next_++);
    full_->Apply({ids_, {}, {}, {++step_, 0}}, answer_);
  }
  void FindInAbsl(std::span<const std::uint32_t> numbers) {
    std::uint32_t sum = 0;
    for (const std::uint32_t number : numbers) sum ^= known_.find(ToInt(IdOf(number)))->second;
    checksum_ = checksum_ ^ sum;
  }
  void FindInAbslAhead(std::span<const std::uint32_t> numbers) {
    constexpr std::size_t kAhead = 16;
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i + kAhead < numbers.size()) known_.prefetch(ToInt(IdOf(numbers[i + kAhead])));
      sum ^= known_.find(ToInt(IdOf(numbers[i])))->second;
    }
    checksum_ = checksum_ ^ sum;
  }
  void ReplaceInAbsl(std::span<const std::uint32_t>) {
    for (std::size_t i = 0; i < kBatch; ++i, ++next_known_) {
      queue_.erase(ToInt(IdOf(next_known_ - ids_count_)));
      queue_.emplace(ToInt(IdOf(next_known_)), 0);
    }
  }

  std::unique_ptr<zch::SlotMap> found_;  // At load 0.8.
  std::unique_ptr<zch::SlotMap> full_;
  std::uint32_t ids_count_;
  std::vector<RowId> ids_;
  std::vector<zch::ZchSlot> slots_;
  std::vector<zch::Outcome> outcomes_;
  zch::Answer answer_;
  MemoryArena arena_;
  absl::flat_hash_map<std::int64_t, std::uint32_t> known_;
  absl::flat_hash_map<std::int64_t, std::uint32_t> queue_;  // Oldest id out, next id in.
  std::uint64_t step_ = 0;
  std::uint64_t next_ = 0;        // Position in full_.
  std::uint64_t next_known_ = 0;  // Position in queue_.
  volatile std::uint32_t checksum_ = 0;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "-o") options.json = std::string(value) == "json";
    if (arg == "--slots") options.slots = std::atoll(value);
    if (arg == "--rounds") options.rounds = std::atoi(value);
  }
  return options;
}

double RateOf(const std::vector<RoundsResult>& results, const std::string& name) {
  for (const RoundsResult& result : results) {
    if (result.name == name) return result.rows_per_second;
  }
  Fail("no such result");
}

void PrintAgainstAbsl(const std::vector<RoundsResult>& results) {
  const double absl_find =
      std::max(RateOf(results, "absl find"), RateOf(results, "absl find, prefetch 16"));
  std::printf("zch find / best absl find: %.2f\n", RateOf(results, "zch find") / absl_find);
  std::printf("zch insert and evict / absl insert and erase: %.2f\n",
              RateOf(results, "zch insert and evict") / RateOf(results, "absl insert and erase"));
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.slots < 1 << 20 || options.slots > 1 << 28 || options.rounds < 1) {
    std::fprintf(stderr, "--slots 1048576 to 268435456, --rounds at least 1\n");
    return 2;
  }
  ZchBench bench(options.slots);
  bench.Verify();
  const auto results = bench.Run(options.rounds);
  PrintResults(results, options.json, "slot map finds and inserts against random reads");
  if (!options.json) PrintAgainstAbsl(results);
  return 0;
}

}  // namespace
}  // namespace embla::bench

int main(int argc, char** argv) { return embla::bench::Main(argc, argv); }
