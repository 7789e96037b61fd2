#include "tools/train/report.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace embla::train {
namespace {

nlohmann::json OrNull(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::ordered_json EpochsToJson(const Report& report) {
  auto epochs = nlohmann::ordered_json::array();
  for (const EpochReport& epoch : report.epoch_reports) {
    epochs.push_back({{"epoch", epochs.size() + 1},
                      {"train_loss", epoch.train_loss},
                      {"validation_auc", OrNull(epoch.validation.auc)},
                      {"validation_logloss", OrNull(epoch.validation.logloss)},
                      {"validation_rmse", OrNull(epoch.validation.rmse)}});
  }
  return epochs;
}

void PrintFigure(const char* name, const std::optional<double>& model,
                 const std::optional<double>& planted, std::ostream& out) {
  if (!model) return;
  out << "test " << absl::StrFormat("%s %.4f", name, *model);
  if (planted) out << absl::StrFormat("  (planted truth: %.4f)", *planted);
  out << "\n";
}

}  // namespace

double Report::examples_per_second() const {
  return seconds > 0.0 ? static_cast<double>(examples) / seconds : 0.0;
}

std::string DescribeEpoch(int epoch, const EpochReport& figures, bool best) {
  const Quality& validation = figures.validation;
  std::string line = absl::StrFormat("epoch %d: train %s %.4f", epoch,
                                     validation.rmse ? "loss" : "logloss", figures.train_loss);
  if (validation.logloss)
    absl::StrAppendFormat(&line, ", validation logloss %.4f", *validation.logloss);
  if (validation.auc) absl::StrAppendFormat(&line, ", AUC %.4f", *validation.auc);
  if (validation.rmse) absl::StrAppendFormat(&line, ", validation RMSE %.4f", *validation.rmse);
  if (best) line += ", best so far";
  return line;
}

void PrintReport(const Report& report, std::ostream& out) {
  out << absl::StrFormat("trained on %d examples in %.2f s: %.0f examples/s, loss %.4f\n",
                         report.examples, report.seconds, report.examples_per_second(),
                         report.train_loss());
  if (report.best_epoch > 0 && report.best_epoch < report.epochs()) {
    out << "best epoch " << report.best_epoch << " of " << report.epochs() << ", by "
        << report.validation_examples << " examples that were not trained on\n";
  }
  if (report.bad_rows > 0) out << "bad rows left out: " << report.bad_rows << "\n";
  if (report.updates_unknown > 0) {
    out << "updates whose outcome is unknown: " << report.updates_unknown << "\n";
  }
  if (report.test_examples == 0) {
    out << "no test examples\n";
    return;
  }
  out << "test examples " << report.test_examples << "\n";
  PrintFigure("AUC", report.quality.auc, report.planted.auc, out);
  PrintFigure("logloss", report.quality.logloss, report.planted.logloss, out);
  PrintFigure("RMSE", report.quality.rmse, report.planted.rmse, out);
}

std::string ReportToJson(const Report& report) {
  return nlohmann::ordered_json{
      {"auc", OrNull(report.quality.auc)},
      {"logloss", OrNull(report.quality.logloss)},
      {"rmse", OrNull(report.quality.rmse)},
      {"planted_auc", OrNull(report.planted.auc)},
      {"planted_logloss", OrNull(report.planted.logloss)},
      {"planted_rmse", OrNull(report.planted.rmse)},
      {"examples", report.examples},
      {"examples_per_second", report.examples_per_second()},
      {"seconds", report.seconds},
      {"cpu_seconds", report.cpu_seconds},
      {"epochs", report.epochs()},
      {"best_epoch", report.best_epoch > 0 ? nlohmann::json(report.best_epoch) : nullptr},
      {"epoch_figures", EpochsToJson(report)},
      {"train_loss", report.train_loss()},
      {"prior", report.prior},
      {"validation_examples", report.validation_examples},
      {"test_examples", report.test_examples},
      {"bad_rows", report.bad_rows},
      {"updates_unknown", report.updates_unknown},
  }
      .dump(2);
}

absl::Status WriteReport(const Report& report, const std::string& path) {
  std::ofstream file(path);
  file << ReportToJson(report) << "\n";
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write the report to ", path));
}

}  // namespace embla::train
