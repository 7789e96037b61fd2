// How fast does a node repeat its journal? A node of two devices is given updates of 64 fp32
// columns with row-wise Adagrad, uniform ids over a million rows, and its journal is then applied
// by new nodes, without snapshots: from the disk, then from the page cache.
//
//   journal_replay_bench [DIRECTORY] [ROUNDS] [MEGABYTES] [IDS]
//
// Default: /tmp, 5 rounds of 2000 MB of records, each of 4096 ids. Prints medians: bytes of records
// per second, and processor seconds per 10^9 bytes. Reading and checking alone, and large reads of
// the files by two threads, the disk's ceiling, are timed in turns with it. The first start is
// compared with the node that wrote the journal.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/warm_up.h"
#include "core/base/check.h"
#include "core/base/file_descriptor.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/planner/placement.h"
#include "server/journal/node_journal.h"
#include "server/log/log_recovery.h"
#include "server/log/log_segments.h"

namespace embla {
namespace {

constexpr std::uint32_t kDim = 64;
constexpr std::int64_t kRows = 1'000'000;
constexpr std::size_t kInFlight = 4;
constexpr TableId kTable{1};

double Wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double Cpu() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figures {
  std::vector<double> bytes_per_second;
  std::vector<double> cpu_seconds_per_byte;

  void Add(double wall, double cpu, double bytes) {
    bytes_per_second.push_back(bytes / wall);
    cpu_seconds_per_byte.push_back(cpu / bytes);
  }
  void Print(const std::string& what) const {
    std::printf("%-36s %8.2f GB/s %8.2f cpu s/GB\n", what.c_str(), 1e-9 * Median(bytes_per_second),
                1e9 * Median(cpu_seconds_per_byte));
  }
};

NodeSpec Self() {
  NodeSpec self;
  self.id = NodeId{1};
  self.name = "n0";
  self.address = "127.0.0.1:1";
  self.devices.resize(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 30});
  return self;
}

PlanPtr OnePlan() {
  TableSpec spec;
  spec.id = kTable;
  spec.name = "t";
  spec.rows = kRows;
  spec.dim = kDim;
  spec.SetDefaults();
  absl::StatusOr<TablePlan> table =
      PlaceTable(spec, {.sharding = ShardingType::kRowWise}, {Self()}, {});
  EMBLA_CHECK(table.ok());
  return std::make_shared<const Plan>(PlanVersion{1}, "bench", std::vector{Self()},
                                      std::vector{*std::move(table)});
}

// A node with its journal.
struct Subject {
  explicit Subject(LogStorage& storage) {
    ShardNodeOptions options;
    options.name = Self().name;
    options.devices = Self().devices;
    NodeJournalOptions journal_options;
    journal_options.level = Durability::kWritten;
    auto opened = NodeJournal::Open(storage, journal_options,
                                    [&] { return ShardNode::Create(options, pool); });
    if (!opened.ok()) LogError("bench", opened.status().message());
    EMBLA_CHECK(opened.ok());
    journal = std::move(opened->journal);
    node = std::move(opened->node);
  }
  ~Subject() {
    EMBLA_CHECK(journal->Close().ok());
    node.reset();
  }

  BufferPool pool;
  std::unique_ptr<NodeJournal> journal;
  std::unique_ptr<ShardNode> node;
};

void Update(ShardNode& node, std::mt19937_64& random, std::uint64_t seq, std::size_t ids,
            UpdateDone done) {
  const std::size_t id_bytes = ids * sizeof(RowId);
  Buffer memory = Buffer::Allocate(id_bytes + ids * kDim * sizeof(float));
  auto* const id = reinterpret_cast<RowId*>(memory.data());
  auto* const gradient = reinterpret_cast<float*>(memory.data() + id_bytes);
  for (std::size_t i = 0; i < ids; ++i) {
    id[i] = RowId{static_cast<std::int64_t>(random() % kRows)};
  }
  const auto value = static_cast<float>(random() % 2001) * 1e-3f - 1;
  for (std::size_t i = 0; i < ids * kDim; ++i) gradient[i] = value + 1e-6f * static_cast<float>(i);
  UpdateBatch batch;
  batch.session = SessionId{1};
  batch.seq = UpdateSeq{seq};
  batch.first_incomplete = UpdateSeq{seq > kInFlight ? seq - kInFlight : 1};
  batch.step = seq;
  batch.wire_dtype = DType::kFloat32;
  UpdatePart& part = batch.parts.emplace_back();
  part.table = kTable;
  part.column_end = kDim;
  part.ids = {id, ids};
  part.gradients = std::as_bytes(std::span(gradient, ids * kDim));
  batch.memory = std::move(memory);
  node.Update(std::move(batch), absl::InfiniteFuture(), std::move(done));
}

// Sum of all weights' bits: any difference shows.
std::uint64_t SumOf(ShardNode& node) {
  std::uint64_t sum = 0;
  ShardNode::RowsQuery query;
  query.table = kTable;
  query.row_end = kRows;
  const absl::Status status = node.ReadRows(query, [&](Buffer bytes) {
    const std::span<const std::byte> all = bytes.bytes();
    for (std::size_t i = 0; i + 8 <= all.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, all.data() + i, sizeof(word));
      sum = sum * 31 + word;
    }
    return absl::OkStatus();
  });
  EMBLA_CHECK(status.ok());
  return sum;
}

std::uint64_t Write(LogStorage& storage, std::size_t bytes, std::size_t ids) {
  Subject subject(storage);
  EMBLA_CHECK(subject.node->InstallPlan(OnePlan(), Self().id).ok());
  std::mt19937_64 random(1);
  Mutex mu;
  CondVar answered;
  std::size_t in_flight = 0;
  const std::size_t updates = bytes / (ids * (sizeof(RowId) + kDim * sizeof(float)));
  for (std::size_t i = 0; i < updates; ++i) {
    {
      const MutexLock lock(mu);
      while (in_flight == kInFlight) answered.Wait(mu);
      ++in_flight;
    }
    Update(*subject.node, random, i + 1, ids, [&](const absl::StatusOr<UpdateResult>& result) {
      EMBLA_CHECK(result.ok());
      const MutexLock lock(mu);
      --in_flight;
      answered.NotifyOne();
    });
  }
  {
    const MutexLock lock(mu);
    while (in_flight > 0) answered.Wait(mu);
  }
  return SumOf(*subject.node);
}

// The bytes of every second file of `paths`, read a MiB at a time: past the page cache, or from it.
std::size_t ReadEverySecond(const std::vector<std::string>& paths, std::size_t first, bool direct) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  const std::unique_ptr<void, decltype(&std::free)> piece(std::aligned_alloc(4096, kPieceBytes),
                                                          &std::free);
  std::size_t bytes = 0;
  for (std::size_t i = first; i < paths.size(); i += 2) {
    const FileDescriptor file(::open(paths[i].c_str(), O_RDONLY | (direct ? O_DIRECT : 0)));
    EMBLA_CHECK(file.is_open());
    ssize_t got = 0;
    while ((got = ::read(file.number(), piece.get(), kPieceBytes)) > 0) bytes += got;
    EMBLA_CHECK(got == 0);
  }
  return bytes;
}

std::size_t ReadFiles(LogStorage& storage, bool direct) {
  std::vector<std::string> paths;
  const std::vector<std::string> names = *storage.List();
  for (const std::string& name : names) {
    if (SegmentNumber(name).has_value()) paths.push_back(storage.PathOf(name));
  }
  const auto read = [&](std::size_t first) { return ReadEverySecond(paths, first, direct); };
  std::future<std::size_t> others = std::async(std::launch::async, read, 1);
  const std::size_t bytes = read(0);
  return bytes + others.get();
}

void Start(DirectoryLogStorage& storage, int rounds, std::uint64_t written, bool from_disk) {
  const std::string from = from_disk ? ", from the disk" : ", from the page cache";
  Figures ceiling;
  Figures replay;
  Figures reading;
  for (int round = 0; round < rounds; ++round) {
    {
      const double cpu = Cpu();
      const Subject subject(storage);
      const JournalRecovery& recovery = subject.journal->recovery();
      replay.Add(absl::ToDoubleSeconds(recovery.took), Cpu() - cpu,
                 static_cast<double>(recovery.bytes));
      if (round == 0) EMBLA_CHECK(SumOf(*subject.node) == written);
    }
    std::size_t read = 0;
    double wall = Wall();
    double cpu = Cpu();
    const auto log = RecoverLog(storage, [&](const LogRecordView& record) {
      read += record.payload.size();
      return absl::OkStatus();
    });
    EMBLA_CHECK(log.ok());
    reading.Add(Wall() - wall, Cpu() - cpu, static_cast<double>(read));
    wall = Wall();
    cpu = Cpu();
    const auto bytes = static_cast<double>(ReadFiles(storage, from_disk));
    ceiling.Add(Wall() - wall, Cpu() - cpu, bytes);
  }
  replay.Print("start" + from);
  reading.Print("reading alone" + from);
  ceiling.Print("large reads" + from);
}

void Run(const std::string& parent, int rounds, std::size_t bytes, std::size_t ids) {
  const std::string directory = parent + "/journal_replay_bench." + std::to_string(::getpid());
  auto storage = DirectoryLogStorage::Open(directory);
  EMBLA_CHECK(storage.ok());
  const std::uint64_t written = Write(**storage, bytes, ids);
  Start(**storage, rounds, written, /*from_disk=*/true);
  WarmUp(directory);
  Start(**storage, rounds, written, /*from_disk=*/false);
  storage->reset();
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  const std::string parent = argc > 1 ? argv[1] : "/tmp";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const long megabytes = argc > 3 ? std::atol(argv[3]) : 2000;
  const long ids = argc > 4 ? std::atol(argv[4]) : 4096;
  if (argc > 5 || rounds <= 0 || megabytes <= 0 || ids <= 0) {
    std::fprintf(stderr, "usage: journal_replay_bench [DIRECTORY] [ROUNDS] [MEGABYTES] [IDS]\n");
    return 2;
  }
  embla::Run(parent, rounds, static_cast<std::size_t>(megabytes) * 1'000'000,
             static_cast<std::size_t>(ids));
  return 0;
}
