// How fast do units move from one node to another? In ratios to sending as many bytes in as large
// pieces by raw gRPC byte buffers (unary) and by a plain socket, as many at a time.
//
//   move_bench [-o json] [--rows N] [--rounds N] [--updates]
//
// Two shard servers in this process, one device each; a table of N rows (1 Mi) x 64 fp32 with SGD
// in 64 units of 5 chunks moves back and forth. With --updates a trainer updates it meanwhile. The
// ratio is that of the medians; beside it, the smallest and the largest of one round.
// The rows are compared with those before the first move, before anything is timed.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ceilings/ceiling.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/clock.h"
#include "core/base/heap.h"
#include "core/base/log.h"
#include "server/app/coordinator_process.h"
#include "server/app/shard_process.h"

namespace embla::bench {
namespace {

constexpr std::uint32_t kDim = 64;
constexpr std::uint32_t kGranules = 64;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr int kInFlight = 8;  // Chunks in flight from a source to one target.

struct Options {
  bool json = false;
  bool updates = false;
  std::int64_t rows = std::int64_t{1} << 20;
  int rounds = 9;
};

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

template <typename Value>
Value OrFail(absl::StatusOr<Value> value) {
  if (!value.ok()) Fail(value.status().ToString());
  return *std::move(value);
}

struct Cluster {
  explicit Cluster(std::int64_t rows) {
    coordinator = OrFail(CoordinatorProcess::Start({}));
    for (const char* const name : {"n0", "n1"}) {
      ShardProcessOptions options;
      options.name = name;
      options.coordinator = coordinator->address();
      options.cluster_key = coordinator->cluster_key();
      options.devices = {{.kind = DeviceKind::kCpu, .memory_bytes = rows * kDim * 8 + (64 << 20)}};
      nodes.push_back(OrFail(ShardProcess::Start(options)));
    }
    admin = OrFail(client::Admin::Connect(coordinator->admin_address(), absl::Seconds(30)));
    while (OrFail(admin->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest())).nodes_live() < 2)
      std::this_thread::yield();
    OrFail(admin->Call<v1::TableReply>(client::CreateTableRequest(
        absl::StrCat(R"({"name": "t", "rows": )", rows, R"(, "dim": )", kDim,
                     R"(, "row_granules": )", kGranules,
                     R"(, "optimizer": {"kind": "sgd", "learning_rate": 1.0},)",
                     R"( "init": {"kind": "uniform", "a": -1.0, "b": 1.0}, "seed": 5})"),
        R"({"sharding": "table_wise"})")));
    client = OrFail(client::Client::Connect(
        {.coordinator = coordinator->address(), .timeout = absl::Seconds(60)}));
  }

  // Moves all units to the node; the job when it is done.
  v1::Job MoveTo(const std::string& node) const {
    v1::Job job =
        OrFail(client::CallForJob(*admin, client::MoveRequest("t", 0, kGranules, node, 0)));
    while (!client::IsOver(job.state())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      job = OrFail(client::CallForJob(*admin, client::GetJobRequest(job.id())));
    }
    if (job.state() != v1::JOB_STATE_DONE) Fail("the job failed: " + job.error());
    return job;
  }

  std::vector<float> ReadSome(std::int64_t rows) const {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < rows; id += 37) ids.push_back(id);
    std::vector<float> read(ids.size() * kDim);
    if (const auto status = client->ReadRows("t", ids, read); !status.ok()) Fail(status.ToString());
    return read;
  }

  std::unique_ptr<CoordinatorProcess> coordinator;
  std::vector<std::unique_ptr<ShardProcess>> nodes;
  std::unique_ptr<client::Admin> admin;
  std::unique_ptr<client::Client> client;
};

// Updates 4096 random rows at a time until it ends.
class Trainer {
 public:
  Trainer(client::Client& client, std::int64_t rows)
      : thread_([this, &client, rows] {
          std::vector<std::int64_t> ids(4096);
          const std::vector<float> gradients(ids.size() * kDim, 0.25f);
          std::uint64_t random = 1;
          while (!stop_) {
            for (std::int64_t& id : ids) {
              random = random * 6364136223846793005u + 1442695040888963407u;
              id = static_cast<std::int64_t>((random >> 33) % static_cast<std::uint64_t>(rows));
            }
            const client::FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
            if (const auto status = client.Update({&feature, 1}, {}); !status.ok()) {
              Fail(status.ToString());
            }
            ++updates_;
          }
        }) {}
  ~Trainer() {
    stop_ = true;
    thread_.join();
  }
  int updates() const { return updates_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> updates_ = 0;
  std::thread thread_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "-o" && has_value) {
      options.json = std::string(argv[++i]) == "json";
    } else if (flag == "--rows" && has_value) {
      options.rows = std::atoll(argv[++i]);
    } else if (flag == "--rounds" && has_value) {
      options.rounds = std::atoi(argv[++i]);
    } else if (flag == "--updates") {
      options.updates = true;
    } else {
      Fail("usage: move_bench [-o json] [--rows N] [--rounds N] [--updates]");
    }
  }
  if (options.rows < kGranules || options.rounds < 1) Fail("--rows or --rounds is too small");
  return options;
}

struct Rates {  // Bytes per second, by round.
  std::vector<double> move, unary, socket;
  double pause_p50_ms = 0;
  double pause_max_ms = 0;
};

// Sends as many bytes as the table has.
double RateOf(Ceiling& ceiling, std::size_t bytes) {
  const Load load{.request_bytes = kChunkBytes,
                  .reply_bytes = 8,
                  .in_flight = kInFlight,
                  .requests = static_cast<int>(bytes / kChunkBytes)};
  return static_cast<double>(bytes) / OrFail(ceiling.Run(load));
}

void Print(const Options& options, const Rates& rates, int updates) {
  const double move = Median(rates.move);
  const double unary = Median(rates.unary);
  const double socket = Median(rates.socket);
  double least = move / unary;
  double most = least;
  for (std::size_t i = 0; i < rates.move.size(); ++i) {
    least = std::min(least, rates.move[i] / rates.unary[i]);
    most = std::max(most, rates.move[i] / rates.unary[i]);
  }
  const char* const format =
      options.json ? "{\"move_bytes_per_second\": %.0f, \"of_grpc_unary\": %.3f, \"least\": %.3f, "
                     "\"most\": %.3f, \"of_socket\": %.3f, \"pause_p50_ms\": %.2f, "
                     "\"pause_max_ms\": %.2f, \"updates\": %d}\n"
                   : "move %.3g B/s: %.2f of raw gRPC unary (%.2f-%.2f), %.2f of a plain socket; a "
                     "unit's pause p50 %.2f ms, max %.2f ms; %d updates meanwhile\n";
  std::printf(format, move, move / unary, least, most, move / socket, rates.pause_p50_ms,
              rates.pause_max_ms, updates);
}

int Run(const Options& options, const std::string& peer_program) {
  SetLogLevel(LogLevel::kError);
  const Cluster cluster(options.rows);
  const std::vector<float> before = cluster.ReadSome(options.rows);
  cluster.MoveTo("n0");
  cluster.MoveTo("n1");
  if (cluster.ReadSome(options.rows) != before) Fail("the moves changed rows");

  const auto peer = OrFail(CeilingPeer::Start(peer_program));
  const auto unary = OrFail(GrpcUnaryCeiling(*peer));
  const auto socket = OrFail(SocketCeiling(*peer));
  const std::size_t bytes = static_cast<std::size_t>(options.rows) * kDim * sizeof(float);
  Rates rates;
  int updates = 0;
  for (int round = 0; round < options.rounds; ++round) {
    std::unique_ptr<Trainer> trainer;
    if (options.updates) trainer = std::make_unique<Trainer>(*cluster.client, options.rows);
    const absl::Time start = Clock::Real().Now();
    const v1::Job job = cluster.MoveTo(round % 2 == 0 ? "n0" : "n1");
    const double seconds = absl::ToDoubleSeconds(Clock::Real().Now() - start);
    if (trainer != nullptr) updates += trainer->updates();
    trainer.reset();
    rates.move.push_back(static_cast<double>(bytes) / seconds);
    rates.pause_p50_ms = std::max(rates.pause_p50_ms, job.pause_p50_ms());
    rates.pause_max_ms = std::max(rates.pause_max_ms, job.pause_max_ms());
    rates.unary.push_back(RateOf(*unary, bytes));
    rates.socket.push_back(RateOf(*socket, bytes));
  }
  Print(options, rates, updates);
  return 0;
}

}  // namespace
}  // namespace embla::bench

int main(int argc, char** argv) {
  // The settings of servers, which the peer of the ceilings has, too.
  embla::KeepFewArenas();
  if (!embla::KeepHeap(embla::kKeptHeapBytes).ok()) std::fprintf(stderr, "malloc keeps no heap\n");
  const std::string self = argv[0];
  const std::string bin = self.substr(0, self.rfind('/') + 1) + "../bin/";
  return embla::bench::Run(embla::bench::Parse(argc, argv), bin + "embla-ceiling-peer");
}
