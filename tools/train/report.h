// What a finished run has to say, for people and as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/train/metrics.h"

namespace embla::train {

struct Report {
  Quality quality;          // On the test set.
  Quality planted;          // Of the generator's own scores on the same test set.
  double train_loss = 0.0;  // Mean over the last epoch.
  double prior = 0.0;       // The constant of the model, see fm.h.
  int epochs = 0;
  std::uint64_t examples = 0;  // Trained on by this process, all epochs together.
  std::uint64_t test_examples = 0;
  std::int64_t bad_rows = 0;
  std::uint64_t updates_unknown = 0;
  double seconds = 0.0;  // Training, without reading the data the first time and testing.

  double examples_per_second() const;
};

void PrintReport(const Report& report, std::ostream& out);

// Absent values are null.
std::string ReportToJson(const Report& report);
absl::Status WriteReport(const Report& report, const std::string& path);

}  // namespace embla::train
