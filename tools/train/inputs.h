// Opens the training and test data of a run and says what was found.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/train/examples.h"
#include "tools/train/options.h"
#include "tools/train/record_reader.h"

namespace embla::train {

struct Inputs {
  ModelKind model = ModelKind::kFm;
  Loss loss = Loss::kLogistic;
  std::unique_ptr<BadRows> train_bad_rows;  // Before the sources, which refer to them.
  std::unique_ptr<BadRows> test_bad_rows;
  std::unique_ptr<ExampleSource> train;
  std::unique_ptr<ExampleSource> test;  // Null: nothing to test on.
  bool generated = false;

  std::int64_t bad_rows() const;
};

// Prints the format, the rule of every column and the first bad rows to `out`, which is not owned
// and outlives the result. InvalidArgument, NotFound or DataLoss name the file and what is wrong.
absl::StatusOr<Inputs> OpenInputs(const InputOptions& options, std::ostream& out);

}  // namespace embla::train
