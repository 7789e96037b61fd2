#include "tools/train/options.h"

#include "absl/strings/str_cat.h"

namespace embla::train {
namespace {

absl::Status Wrong(const char* option, const auto& value, const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", option, " is ", value, ", must be ", allowed));
}

}  // namespace

absl::Status InputOptions::Validate() const {
  if (train_path.empty() == (generate == 0)) {
    return absl::InvalidArgumentError("give either --train FILE or --generate N");
  }
  if (train_path.empty() && !test_path.empty()) {
    return absl::InvalidArgumentError("--test needs --train; --generate draws its own test set");
  }
  if (!(holdout_share >= 0.0 && holdout_share < 1.0)) {
    return Wrong("holdout", holdout_share, "at least 0 and less than 1");
  }
  if (generate_columns < 2 || generate_columns > 1000) {
    return Wrong("generate-columns", generate_columns, "2..1000");
  }
  if (generate_rows > (1u << 30)) {
    return Wrong("generate-rows", generate_rows, "0..2^30");
  }
  if (rule.hash_rows < 4 || rule.hash_rows > (1u << 31)) {
    return Wrong("hash-rows", rule.hash_rows, "4..2^31");
  }
  if (bad_rows_shown < 0) return Wrong("bad-rows-shown", bad_rows_shown, "0 or more");
  return absl::OkStatus();
}

absl::Status RunOptions::Validate() const {
  if (dim < 1 || dim > 2048) return Wrong("dim", dim, "1..2048");
  if (trainers < 1 || trainers > 1024) return Wrong("trainers", trainers, "1..1024");
  if (world < 1 || world > 65536) return Wrong("world", world, "1..65536");
  if (rank < 0 || rank >= world) return Wrong("rank", rank, "0 to --world less 1");
  if (epochs < 0 || epochs > 1000000) return Wrong("epochs", epochs, "0..1000000");
  if (!(validation_fraction >= 0.0 && validation_fraction < 1.0)) {
    return Wrong("validation-fraction", validation_fraction, "at least 0 and less than 1");
  }
  if (stop_after < 0) return Wrong("stop-after", stop_after, "0 or more");
  if (!(tables.initial_accumulator >= 0.0)) {
    return Wrong("initial-accumulator", tables.initial_accumulator, "0 or more");
  }
  if (trainer.batch < 1 || trainer.batch > (1u << 20)) {
    return Wrong("batch", trainer.batch, "1..2^20");
  }
  if (trainer.updates_in_flight < 1 || trainer.updates_in_flight > 64) {
    return Wrong("updates-in-flight", trainer.updates_in_flight, "1..64");
  }
  if (tables.zch_capacity && (*tables.zch_capacity < 1 || *tables.zch_capacity > (1ll << 40))) {
    return Wrong("zch-capacity", *tables.zch_capacity, "1..2^40");
  }
  if (tables.zch_capacity && tables.replica_groups.value_or(1) > 1) {
    return absl::InvalidArgumentError("--zch tables have no --replica-groups");
  }
  if (chunk_examples < 1 || chunk_examples > 0xFFFFFFFFu) {
    return Wrong("chunk", chunk_examples, "1..2^32-1");
  }
  return absl::OkStatus();
}

}  // namespace embla::train
