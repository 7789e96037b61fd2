// Options of a run of embla-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/train/column_encoder.h"
#include "tools/train/csv.h"
#include "tools/train/formats.h"
#include "tools/train/model_tables.h"
#include "tools/train/trainer.h"

namespace embla::train {

struct InputOptions {
  std::string train_path;
  std::string test_path;  // Empty: a share of the training file is held out.
  double holdout_share = 0.1;
  std::uint64_t generate = 0;  // Examples of the built-in generator instead of a file.
  std::uint32_t generate_columns = 8;
  std::uint32_t generate_rows = 0;  // Per column; 0: one for every 2,000 examples.
  Format format = Format::kAuto;
  CsvColumns csv;
  std::vector<std::string> keep_text;
  ColumnRule rule;
  bool strict = false;
  int bad_rows_shown = 5;
  std::optional<ModelKind> model;  // Absent: kMf for ratings, else kFm.
  std::optional<Loss> loss;        // Absent: kSquared for kMf, else kLogistic.
  std::uint64_t seed = 1;

  absl::Status Validate() const;
};

struct RunOptions {
  std::string prefix = "model";
  std::uint32_t dim = 8;
  TableOptions tables;
  TrainerOptions trainer;  // loss and prior come from the input.
  int trainers = 1;        // Threads of this process.
  int rank = 0;            // This process among `world`, each with as many trainers.
  int world = 1;
  int epochs = 20;  // At most.
  // Share of the training examples that are not trained on: each epoch is judged by its loss there.
  double validation_fraction = 0.1;
  // After so many epochs without a better validation loss, training ends, and the tables are as
  // they were after the best epoch. 0: all epochs are trained and the last one counts. Several
  // processes never stop early, as none knows how far the others are.
  int stop_after = 2;
  // A larger copy of the tables than this is not held to return to; then the last epoch counts.
  std::int64_t kept_bytes_max = std::int64_t{4} << 30;
  std::uint64_t seed = 1;  // Seed for the order of examples; equal in all processes.
  // Examples in memory at a time. A larger input is read anew in every epoch and shuffled within
  // such chunks.
  std::size_t chunk_examples = std::size_t{1} << 23;
  std::string report_path;
  std::string export_dir;  // Not empty: all tables are written there as <table>.npy at the end.

  absl::Status Validate() const;
};

}  // namespace embla::train
