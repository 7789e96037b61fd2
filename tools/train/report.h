// The report of a finished run, for people and as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/train/metrics.h"

namespace embla::train {

struct EpochReport {
  double train_loss = 0.0;  // Mean over the examples, each when it was trained on.
  Quality validation;       // After the epoch.
};

struct Report {
  Quality quality;     // On the test set.
  Quality planted;     // Quality of the generator's own scores on the same test set.
  double prior = 0.0;  // The constant of the model, see fm.h.
  std::vector<EpochReport> epoch_reports;
  int best_epoch = 0;  // From 1, by the validation loss; 0: nothing was held back.
  std::uint64_t validation_examples = 0;
  std::uint64_t examples = 0;  // Trained on by this process, all epochs together.
  std::uint64_t test_examples = 0;
  std::int64_t bad_rows = 0;
  std::uint64_t updates_unknown = 0;
  double seconds = 0.0;      // Training, without reading the data the first time and testing.
  double cpu_seconds = 0.0;  // CPU time of this process meanwhile.

  double examples_per_second() const;
  int epochs() const { return static_cast<int>(epoch_reports.size()); }
  double train_loss() const {
    return epoch_reports.empty() ? 0.0 : epoch_reports.back().train_loss;
  }
};

// One line: "epoch 3: train logloss 0.3021, validation logloss 0.3105, AUC 0.9104, best so far".
std::string DescribeEpoch(int epoch, const EpochReport& figures, bool best);

void PrintReport(const Report& report, std::ostream& out);

// Absent values are null.
std::string ReportToJson(const Report& report);
absl::Status WriteReport(const Report& report, const std::string& path);

}  // namespace embla::train
