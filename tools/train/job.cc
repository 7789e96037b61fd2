#include "tools/train/job.h"

#include <filesystem>
#include <numeric>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/train/chunk_reader.h"
#include "tools/train/process_cpu.h"
#include "tools/train/random.h"
#include "tools/train/table_copy.h"
#include "tools/train/trainer_pool.h"

namespace embla::train {
namespace {

ChunkOptions ChunkOptionsOf(const RunOptions& options) {
  ChunkOptions chunks;
  chunks.chunk_max = options.chunk_examples;
  chunks.validation_fraction = options.validation_fraction;
  chunks.seed = options.seed;
  return chunks;
}

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

// One run's epochs, and which of them was the best.
class Epochs {
 public:
  Epochs(const RunOptions& options, Environment& environment, ChunkReader& chunks,
         TrainerPool& pool, Report& report)
      : options_(options),
        progress_(environment.progress),
        clock_(environment.clock),
        chunks_(chunks),
        pool_(pool),
        copy_(*environment.clients.front(), TablesOf(pool.layout()), options.kept_bytes_max),
        report_(report) {}

  // Trains until the epochs are over or the validation loss does not get better any more, and
  // leaves the tables as the best epoch left them.
  absl::Status Run() {
    const ProcessCpu cpu;
    const absl::Time began = clock_.Now();
    for (int epoch = 1; epoch <= options_.epochs && !IsOver(epoch); ++epoch) {
      EMBLA_RETURN_IF_ERROR(Train(epoch));
      EMBLA_RETURN_IF_ERROR(Judge(epoch));
    }
    if (returns_to_best_ && report_.best_epoch != report_.epochs()) {
      EMBLA_RETURN_IF_ERROR(copy_.Restore());
    }
    report_.seconds = absl::ToDoubleSeconds(clock_.Now() - began);
    report_.cpu_seconds = cpu.Seconds();
    report_.validation_examples = chunks_.validation().size();
    report_.updates_unknown = pool_.updates_unknown();
    return absl::OkStatus();
  }

 private:
  bool stops_early() const { return options_.stop_after > 0 && options_.world == 1; }
  bool IsOver(int epoch) const {
    return stops_early() && report_.best_epoch > 0 &&
           epoch > report_.best_epoch + options_.stop_after;
  }

  absl::Status Train(int epoch) {
    const std::size_t total = chunks_.total() * (options_.rank + 1) / options_.world -
                              chunks_.total() * options_.rank / options_.world;
    progress_.BeginEpoch(epoch, options_.epochs, total);
    EMBLA_RETURN_IF_ERROR(chunks_.BeginEpoch());
    for (std::uint64_t part = 0; !chunks_.at_end(); ++part) {
      const std::uint64_t seed = SplitMix64(SplitMix64(options_.seed) + epoch) + part;
      const auto order = OrderOf(chunks_.chunk().size(), seed, options_.rank, options_.world);
      EMBLA_RETURN_IF_ERROR(pool_.Train(chunks_.chunk(), order));
      report_.examples += order.size();
      EMBLA_RETURN_IF_ERROR(chunks_.Advance());
    }
    EMBLA_RETURN_IF_ERROR(pool_.SyncTables());
    progress_.EndEpoch();
    return absl::OkStatus();
  }

  // Adds the epoch's figures to the report, and keeps the tables if they are the best so far.
  absl::Status Judge(int epoch) {
    EpochReport figures{progress_.mean_loss(), {}};
    const Examples& validation = chunks_.validation();
    if (validation.size() > 0) {
      std::vector<float> scores(validation.size());
      EMBLA_RETURN_IF_ERROR(pool_.Predict(validation, scores));
      figures.validation = QualityOf(pool_.loss(), scores, validation.labels);
    }
    report_.epoch_reports.push_back(figures);
    const std::optional<double> loss = ValidationLoss(figures.validation);
    const bool better = loss && (!best_loss_ || *loss < *best_loss_);
    progress_.Say(DescribeEpoch(epoch, figures, better));
    if (!better) return absl::OkStatus();
    best_loss_ = loss;
    report_.best_epoch = epoch;
    if (!stops_early() || epoch == options_.epochs) return absl::OkStatus();
    Keep();
    return absl::OkStatus();
  }

  void Keep() {
    const absl::StatusOr<bool> taken = copy_.Take();
    returns_to_best_ = taken.value_or(false);
    if (returns_to_best_) return;
    const std::string why = taken.ok() ? "the tables are too large to be copied"
                                       : absl::StrCat("no copy: ", Message(taken.status()));
    progress_.Say(absl::StrCat(why, "; unless a later epoch is better, the last one counts"));
  }

  static std::optional<double> ValidationLoss(const Quality& quality) {
    return quality.logloss ? quality.logloss : quality.rmse;
  }

  const RunOptions& options_;
  Progress& progress_;
  const Clock& clock_;
  ChunkReader& chunks_;
  TrainerPool& pool_;
  TableCopy copy_;
  Report& report_;
  std::optional<double> best_loss_;
  bool returns_to_best_ = false;  // copy_ has the tables as the best epoch left them.
};

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
  ChunkReader chunks(*inputs.train, ChunkOptionsOf(options));
  EMBLA_RETURN_IF_ERROR(chunks.LoadFirst());

  const ModelLayout layout =
      LayoutOf(inputs.model, options.prefix, inputs.train->columns(), options.dim);
  EMBLA_RETURN_IF_ERROR(EnsureTables(layout, options.tables, environment.admin,
                                     *environment.clients.front(), environment.out));
  for (client::Client* client : environment.clients) EMBLA_RETURN_IF_ERROR(client->RefreshPlan());

  Report report;
  TrainerOptions trainer = options.trainer;
  trainer.loss = inputs.loss;
  trainer.prior = PriorOf(inputs.loss, MeanLabel(chunks.chunk()));
  report.prior = trainer.prior;
  TrainerPool pool(environment.clients, layout, trainer, environment.progress);
  EMBLA_RETURN_IF_ERROR(Epochs(options, environment, chunks, pool, report).Run());
  if (inputs.test != nullptr) EMBLA_RETURN_IF_ERROR(Test(options, inputs, pool, report));
  report.bad_rows = inputs.bad_rows();
  if (!options.export_dir.empty()) {
    EMBLA_RETURN_IF_ERROR(Export(layout, options.export_dir, environment));
  }
  return report;
}

}  // namespace embla::train
