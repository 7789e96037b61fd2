// embla-train: trains a factorization machine or matrix factorization through an Embla cluster.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/file.h"
#include "core/base/named_option.h"
#include "core/base/program_flags.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/base/tls_flags.h"
#include "core/base/usage_error.h"
#include "core/metrics/program_metrics.h"
#include "tools/train/job.h"

namespace embla::train {
namespace {

// Exit codes: 0 done, 1 the run failed, 2 the options or the input are wrong.
constexpr int kFailed = 1;
constexpr int kWrongInput = 2;

struct Settings {
  InputOptions input;
  RunOptions run;
  std::string coordinator = "127.0.0.1:7070";
  std::string admin = "127.0.0.1:7071";
  client::TlsOptions tls;
  std::string metrics_listen;
  double timeout_seconds = 10.0;
  double patience_seconds = 60.0;
  bool zch = false;
  std::int64_t zch_capacity = 1 << 20;
  bool wait = false;
  bool quiet = false;
};

void AddClusterOptions(CLI::App& app, Settings& settings) {
  auto* group = app.add_option_group("Cluster");
  group->add_option("--coordinator", settings.coordinator, "Address for trainers")
      ->envname("EMBLA_COORDINATOR")
      ->capture_default_str();
  group->add_option("--admin", settings.admin, "Address for table creation")
      ->envname("EMBLA_ADMIN")
      ->capture_default_str();
  AddTlsFlags(*group, settings.tls);
  AddTokenFlag(*group, settings.tls);
  group->add_option("--metrics-listen", settings.metrics_listen,
                    "Where to serve /metrics: host:port (0: a free port); default: nowhere");
  group->add_option("--timeout", settings.timeout_seconds, "Seconds per call")
      ->capture_default_str();
  group->add_flag("--wait", settings.wait,
                  "Wait, up to --timeout, for a coordinator that does not answer yet");
  group
      ->add_option("--patience", settings.patience_seconds,
                   "Seconds to repeat lookups while a node is away; 0: fail at once")
      ->capture_default_str();
}

char ParseSeparator(const std::string& text) {
  if (text == "tab" || text == "\\t") return '\t';
  if (text == "blank" || text == "space") return ' ';
  if (text.size() == 1 && text != "\"" && text != "\n") return text.front();
  throw CLI::ValidationError("--separator", "'" + text + "' is not one character, tab or blank");
}

void AddInputOptions(CLI::App& app, InputOptions& input) {
  auto* group = app.add_option_group("Input");
  group->add_option("--train", input.train_path,
                    "CSV, Criteo or ratings file; plain, gzip or zstd");
  group->add_option("--test", input.test_path, "Test file; without it a share is held out");
  group->add_option("--holdout", input.holdout_share, "Share of --train to test on")
      ->capture_default_str();
  group->add_option("--generate", input.generate, "Train on N generated examples instead");
  group->add_option("--generate-columns", input.generate_columns)->capture_default_str();
  group->add_option("--generate-rows", input.generate_rows,
                    "Per column; 0: one for every 2,000 examples");
  AddNamedOption(*group, "--format", input.format,
                 {{"auto", Format::kAuto},
                  {"csv", Format::kCsv},
                  {"criteo", Format::kCriteo},
                  {"ratings", Format::kRatings}},
                 "Of the files (default: auto)");
  group->add_option("--label", input.csv.label, "CSV label column, in any case")
      ->capture_default_str();
  group->add_option_function<std::string>(
      "--separator",
      [&input](const std::string& text) { input.csv.separator = ParseSeparator(text); },
      "Between fields: one character, or tab, blank (default: found in line 1)");
  group->add_option("--drop", input.csv.dropped, "CSV columns to leave out")->delimiter(',');
  group
      ->add_option("--categorical", input.keep_text,
                   "CSV columns whose values are names: never bucketed, never left out as ids")
      ->delimiter(',');
  group
      ->add_option("--as-is-max", input.rule.as_is_max,
                   "Numbers with more distinct values than this are bucketed")
      ->capture_default_str();
  group
      ->add_option("--hash-rows", input.rule.hash_rows,
                   "Most rows of a column; values of a longer one are hashed")
      ->capture_default_str();
  group->add_flag("--strict", input.strict, "Fail at the first bad row");
  group->add_option("--bad-rows-shown", input.bad_rows_shown)->capture_default_str();
}

void AddModelOptions(CLI::App& app, Settings& settings) {
  auto* group = app.add_option_group("Model and tables");
  TableOptions& tables = settings.run.tables;
  AddNamedOption(*group, "--model", settings.input.model,
                 {{"fm", ModelKind::kFm}, {"mf", ModelKind::kMf}},
                 "mf: for user and item (default: mf for ratings)");
  AddNamedOption(*group, "--loss", settings.input.loss,
                 {{"logistic", Loss::kLogistic}, {"squared", Loss::kSquared}},
                 "(default for mf: squared)");
  group->add_option("--dim", settings.run.dim, "Factors per row")->capture_default_str();
  group->add_option("--prefix", settings.run.prefix, "Table names start with it")
      ->capture_default_str();
  group->add_option("--sharding", tables.sharding, "Of new tables (default: row_wise)");
  group->add_option("--optimizer", tables.optimizer, "Of new tables (default: rowwise_adagrad)");
  group->add_option("--nodes", tables.nodes, "Nodes of new tables (default: all)")->delimiter(',');
  group->add_option("--dtype", tables.dtype, "Of new tables: fp32, fp16 or bf16")
      ->capture_default_str();
  group->add_option("--lr", tables.learning_rate,
                    "Learning rate of new tables (default: 0.1; of adam 0.002, of sgd 0.005)");
  group
      ->add_option("--initial-accumulator", tables.initial_accumulator,
                   "Of new tables with Adagrad: the larger, the shorter the first steps of a row")
      ->capture_default_str();
  group->add_option("--weight-decay", tables.weight_decay, "L2, of new tables")
      ->capture_default_str();
  group->add_option("--replica-groups", tables.replica_groups,
                    "Copies of new tables, trained by as many groups of trainers (default: 1)");
  group->add_option("--sync-every-steps", tables.sync_every_steps,
                    "Average the copies after so many updates of each; 0: after every epoch");
  group->add_flag("--zch", settings.zch,
                  "Raw ids and ZCH tables: no dictionary, no collisions (docs/zch.md)");
  group->add_option("--zch-capacity", settings.zch_capacity, "Ids with a row, per table")
      ->capture_default_str();
  group->add_option("--init", tables.init_deviation, "Deviation of initial factors")
      ->capture_default_str();
}

void AddTrainingOptions(CLI::App& app, Settings& settings) {
  auto* group = app.add_option_group("Training");
  RunOptions& run = settings.run;
  group->add_option("--trainers", run.trainers, "Threads of this process")->capture_default_str();
  group->add_option("--rank", run.rank, "This process among --world")->capture_default_str();
  group->add_option("--world", run.world, "Processes that share the input")->capture_default_str();
  group->add_option("--epochs", run.epochs, "At most")->capture_default_str();
  group
      ->add_option("--validation-fraction", run.validation_fraction,
                   "Share of the training examples that each epoch is judged by; 0: none")
      ->capture_default_str();
  group
      ->add_option("--stop-after", run.stop_after,
                   "Epochs without a better validation loss; then the best one is kept; 0: never "
                   "stop early, keep the last")
      ->capture_default_str();
  group->add_option("--batch", run.trainer.batch, "Examples per step")->capture_default_str();
  AddNamedOption(*group, "--wire", run.trainer.wire,
                 {{"fp32", client::WireFormat::kFp32},
                  {"fp16", client::WireFormat::kFp16},
                  {"bf16", client::WireFormat::kBf16},
                  {"int8", client::WireFormat::kInt8}},
                 "Of rows and gradients");
  group->add_flag("--synchronous", run.trainer.synchronous,
                  "Each step waits for the update of the step before");
  group->add_option("--updates-in-flight", run.trainer.updates_in_flight)->capture_default_str();
  group->add_flag("--gradient-mean", run.trainer.gradient_mean,
                  "Divide gradients by the batch size");
  group->add_option("--seed", run.seed, "Of initial weights and the order of examples")
      ->capture_default_str();
  group->add_option("--chunk", run.chunk_examples, "Examples in memory at a time")
      ->capture_default_str();
  group->add_option("--report", run.report_path, "Write the final figures as JSON");
  group->add_option("--export", run.export_dir, "Write all tables as .npy into this folder");
  group->add_flag("--quiet", settings.quiet, "No progress");
}

absl::StatusOr<std::vector<std::unique_ptr<client::Client>>> ConnectAll(const Settings& settings,
                                                                        Metrics& metrics) {
  std::vector<std::unique_ptr<client::Client>> clients;
  for (int i = 0; i < settings.run.trainers; ++i) {
    client::ConnectOptions options;
    options.coordinator = settings.coordinator;
    options.timeout = absl::Seconds(settings.timeout_seconds);
    options.threads = 1;
    options.metrics = &metrics;
    options.waits_for_coordinator = settings.wait;
    options.tls = settings.tls;
    auto client = client::Client::Connect(options);
    if (!client.ok()) {
      return Annotate(client.status(), "cannot reach the coordinator " + settings.coordinator);
    }
    clients.push_back(std::move(client).value());
  }
  return clients;
}

absl::Status Train(const Settings& settings, Inputs& inputs) {
  EMBLA_ASSIGN_OR_RETURN(const auto metrics,
                         ProgramMetrics::Start(settings.metrics_listen, "embla-train"));
  if (!metrics->address().empty()) std::cout << "metrics: " << metrics->address() << std::endl;
  EMBLA_ASSIGN_OR_RETURN(const auto clients, ConnectAll(settings, metrics->metrics()));
  EMBLA_ASSIGN_OR_RETURN(
      const auto admin,
      client::Admin::Connect(
          settings.admin, absl::Seconds(settings.timeout_seconds),
          settings.wait ? client::Admin::IfAbsent::kWait : client::Admin::IfAbsent::kFail,
          settings.tls));
  const auto style = settings.quiet                 ? Progress::Style::kSilent
                     : ::isatty(STDOUT_FILENO) != 0 ? Progress::Style::kBar
                                                    : Progress::Style::kLines;
  Progress progress(std::cout, style, Clock::Real());
  Environment environment{*admin, {}, std::cout, progress, Clock::Real()};
  for (const auto& client : clients) environment.clients.push_back(client.get());
  EMBLA_ASSIGN_OR_RETURN(const Report report, RunJob(settings.run, inputs, environment));
  PrintReport(report, std::cout);
  if (settings.run.report_path.empty()) return absl::OkStatus();
  return WriteReport(report, settings.run.report_path);
}

int Fail(const absl::Status& status, int code) {
  std::cerr << "embla-train: " << status.ToString() << "\n";
  return code;
}

int Main(int argc, char** argv) {
  CLI::App app("Trains a factorization machine or matrix factorization through an Embla cluster",
               "embla-train");
  AddProgramFlags<CLI::CallForVersion>(app);
  Settings settings;
  AddClusterOptions(app, settings);
  AddInputOptions(app, settings.input);
  AddModelOptions(app, settings);
  AddTrainingOptions(app, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitAfterParse(app, error);
  }
  if (!settings.run.report_path.empty()) {
    const absl::Status writable = Annotate(CheckWritable(settings.run.report_path), "--report");
    if (!writable.ok()) return Fail(writable, kWrongInput);
  }
  if (!settings.run.export_dir.empty()) {
    const absl::Status made = Annotate(MakeDirectories(settings.run.export_dir), "--export");
    if (!made.ok()) return Fail(made, kWrongInput);
  }
  settings.run.trainer.patience = absl::Seconds(settings.patience_seconds);
  settings.input.rule.raw_ids = settings.zch;
  if (settings.zch) settings.run.tables.zch_capacity = settings.zch_capacity;
  settings.run.tables.seed = settings.input.seed = settings.run.seed;
  const absl::Status valid = settings.run.Validate();
  if (!valid.ok()) return Fail(valid, kWrongInput);
  auto inputs = OpenInputs(settings.input, std::cout);
  if (!inputs.ok()) return Fail(inputs.status(), kWrongInput);
  const absl::Status trained = Train(settings, *inputs);
  if (trained.ok()) return 0;
  return Fail(trained, absl::IsInvalidArgument(trained) ? kWrongInput : kFailed);
}

}  // namespace
}  // namespace embla::train

int main(int argc, char** argv) { return embla::train::Main(argc, argv); }
