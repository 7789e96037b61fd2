#include "tools/train/job.h"

#include <filesystem>
#include <numeric>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "tools/train/random.h"
#include "tools/train/trainer_pool.h"

namespace embla::train {
namespace {

// The training data in chunks: all of it at once when it fits, else read anew in every epoch.
class ChunkReader {
 public:
  ChunkReader(ExampleSource& source, std::size_t chunk_max)
      : source_(source), chunk_max_(chunk_max) {}

  absl::Status LoadFirst() {
    EMBLA_RETURN_IF_ERROR(Load());
    holds_all_ = chunk_.size() < chunk_max_;
    if (chunk_.size() > 0) return absl::OkStatus();
    return absl::InvalidArgumentError("the input has no training examples");
  }
  // Makes chunk() the first one of another epoch.
  absl::Status BeginEpoch() {
    at_end_ = false;
    if (holds_all_ || is_first_) return absl::OkStatus();
    EMBLA_RETURN_IF_ERROR(source_.Restart());
    return Load();
  }
  // Makes chunk() the next one; it is empty at the end.
  absl::Status Advance() {
    is_first_ = false;
    at_end_ = holds_all_;
    return holds_all_ ? absl::OkStatus() : Load();
  }
  bool at_end() const { return at_end_; }
  const Examples& chunk() const { return chunk_; }
  // Of one epoch; 0: not known.
  std::size_t total() const { return holds_all_ ? chunk_.size() : 0; }

 private:
  absl::Status Load() {
    chunk_.Clear();
    EMBLA_RETURN_IF_ERROR(source_.Read(chunk_max_, chunk_));
    at_end_ = chunk_.size() == 0;
    return absl::OkStatus();
  }

  ExampleSource& source_;
  const std::size_t chunk_max_;
  Examples chunk_;
  bool holds_all_ = false;
  bool is_first_ = true;
  bool at_end_ = false;
};

double MeanLabel(const Examples& examples) {
  double sum = 0.0;
  for (const float label : examples.labels) sum += label;
  return sum / static_cast<double>(examples.size());
}

// This process's part of a chunk. All processes shuffle alike and take adjacent parts.
std::vector<std::uint32_t> OrderOf(std::size_t examples, std::uint64_t seed, int rank, int world) {
  std::vector<std::uint32_t> order(examples);
  std::iota(order.begin(), order.end(), 0u);
  Random(seed).Shuffle(std::span(order));
  const auto begin = static_cast<std::ptrdiff_t>(examples * rank / world);
  const auto end = static_cast<std::ptrdiff_t>(examples * (rank + 1) / world);
  return {order.begin() + begin, order.begin() + end};
}

absl::Status TrainEpoch(const RunOptions& options, int epoch, ChunkReader& chunks,
                        TrainerPool& pool, Report& report) {
  EMBLA_RETURN_IF_ERROR(chunks.BeginEpoch());
  for (std::uint64_t part = 0; !chunks.at_end(); ++part) {
    const std::uint64_t seed = SplitMix64(SplitMix64(options.seed) + epoch) + part;
    const auto order = OrderOf(chunks.chunk().size(), seed, options.rank, options.world);
    EMBLA_RETURN_IF_ERROR(pool.Train(chunks.chunk(), order));
    report.examples += order.size();
    EMBLA_RETURN_IF_ERROR(chunks.Advance());
  }
  return absl::OkStatus();
}

absl::Status TrainAll(const RunOptions& options, ChunkReader& chunks, TrainerPool& pool,
                      Environment& environment, Report& report) {
  const absl::Time began = environment.clock.Now();
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const std::size_t total = chunks.total() * (options.rank + 1) / options.world -
                              chunks.total() * options.rank / options.world;
    environment.progress.BeginEpoch(epoch, options.epochs, total);
    EMBLA_RETURN_IF_ERROR(TrainEpoch(options, epoch, chunks, pool, report));
    EMBLA_RETURN_IF_ERROR(pool.SyncTables());
    environment.progress.EndEpoch();
  }
  report.seconds = absl::ToDoubleSeconds(environment.clock.Now() - began);
  report.train_loss = environment.progress.mean_loss();
  report.updates_unknown = pool.updates_unknown();
  return absl::OkStatus();
}

absl::Status Test(const RunOptions& options, Inputs& inputs, TrainerPool& pool, Report& report) {
  std::vector<float> scores;
  std::vector<float> labels;
  std::vector<float> planted;
  Examples chunk;
  while (true) {
    chunk.Clear();
    EMBLA_RETURN_IF_ERROR(inputs.test->Read(options.chunk_examples, chunk));
    if (chunk.size() == 0) break;
    const std::size_t before = scores.size();
    scores.resize(before + chunk.size());
    EMBLA_RETURN_IF_ERROR(pool.Predict(chunk, std::span(scores).subspan(before)));
    labels.insert(labels.end(), chunk.labels.begin(), chunk.labels.end());
    planted.insert(planted.end(), chunk.planted_scores.begin(), chunk.planted_scores.end());
  }
  report.test_examples = labels.size();
  report.quality = QualityOf(inputs.loss, scores, labels);
  if (inputs.generated) report.planted = QualityOf(inputs.loss, planted, labels);
  return absl::OkStatus();
}

absl::Status Export(const ModelLayout& layout, const std::string& dir, Environment& environment) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::UnavailableError(absl::StrCat(dir, ": ", error.message()));
  for (const TablePair& pair : layout.pairs) {
    for (const std::string& table : {pair.linear, pair.factors}) {
      const std::string path = absl::StrCat(dir, "/", table, ".npy");
      EMBLA_RETURN_IF_ERROR(environment.clients.front()->ExportTable(table, path));
      environment.out << "wrote " << path << "\n";
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> RunJob(const RunOptions& options, Inputs& inputs, Environment& environment) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_CHECK(environment.clients.size() == static_cast<std::size_t>(options.trainers));
  ChunkReader chunks(*inputs.train, options.chunk_examples);
  EMBLA_RETURN_IF_ERROR(chunks.LoadFirst());

  const ModelLayout layout =
      LayoutOf(inputs.model, options.prefix, inputs.train->columns(), options.dim);
  EMBLA_RETURN_IF_ERROR(EnsureTables(layout, options.tables, environment.admin,
                                     *environment.clients.front(), environment.out));
  for (client::Client* client : environment.clients) EMBLA_RETURN_IF_ERROR(client->RefreshPlan());

  Report report;
  report.epochs = options.epochs;
  TrainerOptions trainer = options.trainer;
  trainer.loss = inputs.loss;
  trainer.prior = PriorOf(inputs.loss, MeanLabel(chunks.chunk()));
  report.prior = trainer.prior;
  TrainerPool pool(environment.clients, layout, trainer, environment.progress);
  EMBLA_RETURN_IF_ERROR(TrainAll(options, chunks, pool, environment, report));
  if (inputs.test != nullptr) EMBLA_RETURN_IF_ERROR(Test(options, inputs, pool, report));
  report.bad_rows = inputs.bad_rows();
  if (!options.export_dir.empty()) {
    EMBLA_RETURN_IF_ERROR(Export(layout, options.export_dir, environment));
  }
  return report;
}

}  // namespace embla::train
