#include "tools/train/inputs.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/train/file_source.h"
#include "tools/train/generator.h"

namespace embla::train {
namespace {

constexpr std::uint64_t kTestShareOfGenerated = 5;  // One test example for so many others.
// Enough examples per row that the model can come close to the planted truth.
constexpr std::uint64_t kGeneratedExamplesPerRow = 2000;
constexpr std::uint64_t kGeneratedRowsMin = 10;
constexpr std::uint64_t kGeneratedRowsMax = 1u << 24;

std::uint32_t GeneratedRows(const InputOptions& options) {
  if (options.generate_rows > 0) return options.generate_rows;
  return static_cast<std::uint32_t>(std::clamp(options.generate / kGeneratedExamplesPerRow,
                                               kGeneratedRowsMin, kGeneratedRowsMax));
}

void PrintColumns(const Encoding& encoding, std::ostream& out) {
  for (const std::string& name : encoding.left_out) {
    out << "  " << name << ": left out, as every record has another value (--categorical " << name
        << " keeps it)\n";
  }
  for (const Column& column : encoding.columns) {
    out << "  " << column.name << ": " << column.rule;
    if (column.rows > 0) out << " (" << column.rows << " rows)";
    out << "\n";
  }
}

Inputs OpenGenerator(const InputOptions& options, std::ostream& out) {
  Inputs inputs;
  inputs.model = options.model.value_or(ModelKind::kFm);
  inputs.loss =
      options.loss.value_or(inputs.model == ModelKind::kMf ? Loss::kSquared : Loss::kLogistic);
  inputs.generated = true;
  GeneratorOptions generator;
  generator.examples = options.generate;
  generator.columns = inputs.model == ModelKind::kMf ? 2 : options.generate_columns;
  generator.rows_per_column = GeneratedRows(options);
  generator.loss = inputs.loss;
  generator.seed = options.seed;
  inputs.train = std::make_unique<Generator>(generator);
  generator.first_example = options.generate;
  generator.examples = std::max<std::uint64_t>(1, options.generate / kTestShareOfGenerated);
  inputs.test = std::make_unique<Generator>(generator);
  out << "input: generator with seed " << options.seed << ", " << options.generate
      << " examples to train on, " << generator.examples << " to test on, " << generator.columns
      << " columns x " << generator.rows_per_column << " rows\n";
  return inputs;
}

// Ratings are numbers, whatever else is asked.
LabelKind LabelKindOf(const InputOptions& options) {
  const bool squared =
      options.loss == Loss::kSquared || (!options.loss && options.model == ModelKind::kMf);
  return squared ? LabelKind::kNumber : LabelKind::kBinary;
}

FileOptions FileOptionsOf(const InputOptions& options) {
  FileOptions file;
  file.path = options.train_path;
  file.format = options.format;
  file.label_kind = LabelKindOf(options);
  file.csv = options.csv;
  file.keep_text = options.keep_text;
  file.rule = options.rule;
  file.split.seed = options.seed;
  file.split.holdout_share = options.holdout_share;
  return file;
}

// Opens the test data: a file of its own, or the part held out of the training file.
absl::Status OpenTest(const InputOptions& options, const FileSource& train, std::ostream& out,
                      Inputs& inputs) {
  FileOptions file = FileOptionsOf(options);
  file.format = train.format();
  // Rows of a shared file were shown once already.
  const bool shared = options.test_path.empty();
  inputs.test_bad_rows =
      std::make_unique<BadRows>(out, shared ? 0 : options.bad_rows_shown, options.strict);
  if (shared) {
    if (options.holdout_share == 0.0) return absl::OkStatus();
    file.split.part = Split::Part::kHoldout;
    inputs.test_bad_rows->BeginAnotherPass();
  } else {
    file.path = options.test_path;
  }
  EMBLA_ASSIGN_OR_RETURN(inputs.test,
                         FileSource::Open(file, train.encoding(), *inputs.test_bad_rows));
  return absl::OkStatus();
}

absl::Status CheckModel(const Inputs& inputs, Format format) {
  if (inputs.model == ModelKind::kMf && inputs.train->columns().size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix factorization needs two columns, the input has ",
                     inputs.train->columns().size(), ": use --model fm, or --drop columns"));
  }
  if (format == Format::kRatings && inputs.loss == Loss::kLogistic) {
    return absl::InvalidArgumentError("ratings are numbers: use --loss squared");
  }
  return absl::OkStatus();
}

absl::StatusOr<Inputs> OpenFiles(const InputOptions& options, std::ostream& out) {
  Inputs inputs;
  inputs.train_bad_rows = std::make_unique<BadRows>(out, options.bad_rows_shown, options.strict);
  FileOptions file = FileOptionsOf(options);
  if (options.test_path.empty()) file.split.part = Split::Part::kTrain;
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> train,
                         FileSource::Learn(file, *inputs.train_bad_rows));
  const Format format = train->format();
  const bool ratings = format == Format::kRatings;
  inputs.model = options.model.value_or(ratings ? ModelKind::kMf : ModelKind::kFm);
  const bool squared = inputs.model == ModelKind::kMf || ratings;
  inputs.loss = options.loss.value_or(squared ? Loss::kSquared : Loss::kLogistic);
  out << "input: " << options.train_path << ", format " << NameOf(format) << ", "
      << train->columns().size() << " columns";
  if (format != Format::kRatings) out << ", separator " << SeparatorName(train->separator());
  out << "\n";
  PrintColumns(*train->encoding(), out);
  EMBLA_RETURN_IF_ERROR(OpenTest(options, *train, out, inputs));
  inputs.train = std::move(train);
  EMBLA_RETURN_IF_ERROR(CheckModel(inputs, format));
  return inputs;
}

}  // namespace

std::int64_t Inputs::bad_rows() const {
  return (train_bad_rows ? train_bad_rows->count() : 0) +
         (test_bad_rows ? test_bad_rows->count() : 0);
}

absl::StatusOr<Inputs> OpenInputs(const InputOptions& options, std::ostream& out) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  if (options.generate > 0) return OpenGenerator(options, out);
  return OpenFiles(options, out);
}

}  // namespace embla::train
