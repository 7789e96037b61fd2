// Measures the share of a disk's speed that a node's log reaches: updates of 4096 ids of dim 64 in
// fp32, four of them in flight, through NodeLog; and the same bytes by a bare writer with the same
// syncs, in turns.
//
//   journal_writer_bench [DIRECTORY] [ROUNDS] [UPDATES]    default: /tmp, 5 rounds of 500 updates
//
// Prints medians, and of each level what the log reaches of the bare writer. CPU is that of the
// process: what the system writes back later on is not in it. The bare writer writes a record with
// one call from one piece of memory into a preallocated file of a segment's size, and syncs as the
// level asks: never more than half a second late at `written`, after every four at `synced`. At
// `none` there is no log: the records are encoded and dropped.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/ids.h"
#include "server/journal/decision_record.h"
#include "server/log/node_log.h"

namespace embla {
namespace {

constexpr std::size_t kIds = 4096;
constexpr std::size_t kDim = 64;
constexpr std::size_t kInFlight = 4;
constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
constexpr std::size_t kKeptBytes = std::size_t{512} << 20;

class Stopwatch {
 public:
  double seconds() const { return Wall() - wall_; }
  double cpu_seconds() const { return Cpu() - cpu_; }

 private:
  static double Wall() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  static double Cpu() {
    struct rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  double wall_ = Wall();
  double cpu_ = Cpu();
};

struct Figures {
  double rows_per_second = 0;
  double cpu_seconds_per_million = 0;
};

Figures FiguresOf(const Stopwatch& watch, std::size_t updates) {
  const auto rows = static_cast<double>(updates * kIds);
  return {rows / watch.seconds(), watch.cpu_seconds() / (1e-6 * rows)};
}

// The content of a request: it lives until its record is written.
struct Received {
  SharedBuffer memory;
  std::span<const RowId> ids;
  std::span<const float> gradients;
};

std::vector<Received> MakeRequests() {
  std::mt19937_64 random(1);
  std::vector<Received> requests;
  for (std::size_t i = 0; i < 2 * kInFlight; ++i) {
    Buffer memory = Buffer::Allocate(kIds * (sizeof(RowId) + kDim * sizeof(float)));
    const std::span<std::byte> bytes = memory.bytes();
    const std::span ids(reinterpret_cast<RowId*>(bytes.data()), kIds);
    const std::span gradients(reinterpret_cast<float*>(ids.data() + kIds), kIds * kDim);
    for (RowId& id : ids) id = RowId{static_cast<std::int64_t>(random() % 1'000'000)};
    for (float& value : gradients) value = static_cast<float>(random() % 2001) - 1000;
    requests.push_back({std::move(memory), ids, gradients});
  }
  return requests;
}

DecisionRecord RecordOf(const Received& received, std::uint64_t seq) {
  DecidedUpdate update;
  update.batch.session = SessionId{1};
  update.batch.seq = UpdateSeq{seq};
  update.batch.wire_dtype = DType::kFloat32;
  update.batch.memory = received.memory;
  UpdatePart& part = update.batch.parts.emplace_back();
  part.table = TableId{1};
  part.column_end = kDim;
  part.ids = received.ids;
  part.gradients = std::as_bytes(received.gradients);
  update.tables.push_back({.table = TableId{1}, .units = {}});
  return EncodeDecision(update);
}

class Bench {
 public:
  Bench(std::string directory, std::size_t updates)
      : directory_(std::move(directory)), updates_(updates), requests_(MakeRequests()) {}

  Figures None() const {
    const Stopwatch watch;
    for (std::size_t i = 0; i < updates_; ++i) {
      EMBLA_CHECK(RecordOf(requests_[i % requests_.size()], i).payload.size() > 0);
    }
    return FiguresOf(watch, updates_);
  }

  Figures Log(Durability level) const {
    std::filesystem::remove_all(directory_);
    auto storage = DirectoryLogStorage::Open(directory_);
    EMBLA_CHECK(storage.ok());
    auto log = NodeLog::Open(**storage, {}, [](const LogRecordView&) { return absl::OkStatus(); });
    EMBLA_CHECK(log.ok());
    Mutex mu;
    CondVar answered;
    std::size_t in_flight = 0;
    std::size_t kept_bytes = 0;
    const Stopwatch watch;
    for (std::size_t i = 0; i < updates_; ++i) {
      {
        const MutexLock lock(mu);
        while (in_flight == kInFlight) answered.Wait(mu);
        ++in_flight;
      }
      DecisionRecord record = RecordOf(requests_[i % requests_.size()], i);
      kept_bytes += record.payload.size();
      const auto lsn = (*log)->AppendUpdate(level, static_cast<std::uint16_t>(record.kind),
                                            std::move(record.payload), [&](const absl::Status& s) {
                                              EMBLA_CHECK(s.ok());
                                              const MutexLock lock(mu);
                                              --in_flight;
                                              answered.NotifyOne();
                                            });
      EMBLA_CHECK(lsn.ok());
      if (kept_bytes < kKeptBytes) continue;
      kept_bytes = 0;
      EMBLA_CHECK((*log)->Truncate(*lsn).ok());
    }
    {
      const MutexLock lock(mu);
      while (in_flight > 0) answered.Wait(mu);
    }
    return FiguresOf(watch, updates_);
  }

  Figures Bare(Durability level) const {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    const std::string bytes(RecordBytes(RecordOf(requests_.front(), 0).payload.size()), 'x');
    const std::size_t per_file = kSegmentBytes / bytes.size();
    const std::size_t files_kept = kKeptBytes / kSegmentBytes;
    int file = -1;
    std::size_t number = 0;
    const Stopwatch watch;
    Stopwatch since_sync;
    const auto sync = [&] {
      EMBLA_CHECK(::fdatasync(file) == 0);
      since_sync = Stopwatch();
    };
    for (std::size_t i = 0; i < updates_; ++i) {
      if (i % per_file == 0) {
        if (file >= 0) {
          sync();
          ::close(file);
        }
        const std::string path = directory_ + "/bare-";
        file =
            ::open((path + std::to_string(number)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        EMBLA_CHECK(file >= 0);
        EMBLA_CHECK(::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, kSegmentBytes) == 0);
        if (number++ >= files_kept) {
          ::unlink((path + std::to_string(number - 1 - files_kept)).c_str());
        }
      }
      EMBLA_CHECK(::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
      const bool waits = level == Durability::kSynced && i % kInFlight == kInFlight - 1;
      if (waits || since_sync.seconds() > 0.5) sync();
    }
    const Figures figures = FiguresOf(watch, updates_);
    ::close(file);
    return figures;
  }

 private:
  const std::string directory_;
  const std::size_t updates_;
  const std::vector<Received> requests_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run(const std::string& parent, int rounds, std::size_t updates) {
  const std::string directory = parent + "/journal_writer_bench." + std::to_string(::getpid());
  const Bench bench(directory, updates);
  struct Row {
    const char* name;
    Durability level;
    bool bare;
  };
  const Row rows[] = {{"none", Durability::kNone, false},
                      {"written", Durability::kWritten, false},
                      {"written, bare", Durability::kWritten, true},
                      {"synced", Durability::kSynced, false},
                      {"synced, bare", Durability::kSynced, true}};
  std::map<std::string, std::vector<double>> rates;
  std::map<std::string, std::vector<double>> cpu;
  for (int round = 0; round < rounds; ++round) {
    for (const Row& row : rows) {
      const Figures figures = row.level == Durability::kNone ? bench.None()
                              : row.bare                     ? bench.Bare(row.level)
                                                             : bench.Log(row.level);
      rates[row.name].push_back(figures.rows_per_second);
      cpu[row.name].push_back(figures.cpu_seconds_per_million);
    }
  }
  std::filesystem::remove_all(directory);
  std::printf("%-14s %12s %10s %14s\n", "level", "M rows/s", "of bare", "cpu s/M rows");
  for (const Row& row : rows) {
    const double rate = Median(rates[row.name]);
    std::printf("%-14s %12.2f ", row.name, 1e-6 * rate);
    const auto bare = rates.find(std::string(row.name) + ", bare");
    if (bare == rates.end()) {
      std::printf("%10s", "");
    } else {
      std::printf("%10.2f", rate / Median(bare->second));
    }
    std::printf(" %14.3f\n", Median(cpu[row.name]));
  }
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  const std::string parent = argc > 1 ? argv[1] : "/tmp";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const int updates = argc > 3 ? std::atoi(argv[3]) : 500;
  if (argc > 4 || rounds <= 0 || updates <= 0) {
    std::fprintf(stderr, "usage: journal_writer_bench [DIRECTORY] [ROUNDS] [UPDATES]\n");
    return 2;
  }
  embla::Run(parent, rounds, static_cast<std::size_t>(updates));
  return 0;
}
