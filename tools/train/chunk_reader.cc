#include "tools/train/chunk_reader.h"

#include <algorithm>

#include "core/base/status_macros.h"
#include "tools/train/random.h"

namespace embla::train {

absl::Status ChunkReader::LoadFirst() {
  EMBLA_RETURN_IF_ERROR(Load());
  holds_all_ = position_ < options_.chunk_max;
  if (chunk_.size() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      validation_.size() == 0
          ? "the input has no training examples"
          : "all training examples are held back: choose a smaller --validation-fraction");
}

absl::Status ChunkReader::BeginEpoch() {
  at_end_ = false;
  if (holds_all_ || is_first_) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(source_.Restart());
  position_ = 0;
  held_back_ = 0;
  return Load();
}

absl::Status ChunkReader::Advance() {
  is_first_ = false;
  at_end_ = holds_all_;
  return holds_all_ ? absl::OkStatus() : Load();
}

absl::Status ChunkReader::Load() {
  const std::uint64_t before = position_;
  chunk_.Clear();
  EMBLA_RETURN_IF_ERROR(source_.Read(options_.chunk_max, chunk_));
  position_ += chunk_.size();
  at_end_ = position_ == before;
  if (at_end_) validation_done_ = true;
  if (options_.validation_fraction > 0.0) HoldBack();
  return absl::OkStatus();
}

// Moves examples from chunk_ to validation_; later passes only take them out of chunk_.
void ChunkReader::HoldBack() {
  const std::uint64_t first = position_ - chunk_.size();
  const std::size_t columns = validation_.columns = chunk_.columns;
  std::size_t kept = 0;
  for (std::size_t e = 0; e < chunk_.size(); ++e) {
    const auto rows = chunk_.rows.begin() + static_cast<std::ptrdiff_t>(e * columns);
    const auto rows_end = rows + static_cast<std::ptrdiff_t>(columns);
    if (held_back_ < options_.validation_max && IsHeldBack(first + e)) {
      ++held_back_;
      if (validation_done_) continue;
      validation_.rows.insert(validation_.rows.end(), rows, rows_end);
      validation_.labels.push_back(chunk_.labels[e]);
      continue;
    }
    std::copy(rows, rows_end, chunk_.rows.begin() + static_cast<std::ptrdiff_t>(kept * columns));
    chunk_.labels[kept++] = chunk_.labels[e];
  }
  chunk_.rows.resize(kept * columns);
  chunk_.labels.resize(kept);
  chunk_.planted_scores.clear();
}

bool ChunkReader::IsHeldBack(std::uint64_t position) const {
  constexpr std::uint64_t kStream = 0x76616C6964617465u;  // Apart from other uses of the seed.
  return Random(SplitMix64(options_.seed ^ kStream) ^ position).Uniform() <
         options_.validation_fraction;
}

}  // namespace embla::train
