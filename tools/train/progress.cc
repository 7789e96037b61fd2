#include "tools/train/progress.h"

#include <algorithm>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace embla::train {
namespace {

constexpr int kBarWidth = 24;
constexpr int kPercentPerLine = 25;
constexpr absl::Duration kLineInterval = absl::Seconds(10);

}  // namespace

void Progress::BeginEpoch(int epoch, int epochs, std::uint64_t total) {
  MutexLock lock(mu_);
  epoch_ = epoch;
  epochs_ = epochs;
  total_ = total;
  began_ = shown_at_ = clock_.Now();
  counts_ = shown_ = Counts{};
  shown_percent_ = 0;
}

void Progress::Add(std::uint64_t examples, double loss_sum) {
  MutexLock lock(mu_);
  counts_.examples += examples;
  counts_.loss_sum += loss_sum;
}

void Progress::Draw() {
  MutexLock lock(mu_);
  if (counts_.examples > 0 && IsDue()) Print(/*last=*/false);
}

void Progress::EndEpoch() {
  MutexLock lock(mu_);
  total_ = counts_.examples;
  if (style_ != Style::kSilent) Print(/*last=*/true);
}

void Progress::Say(std::string_view line) {
  MutexLock lock(mu_);
  if (style_ != Style::kSilent) out_ << line << "\n" << std::flush;
}

double Progress::mean_loss() const {
  MutexLock lock(mu_);
  if (counts_.examples == 0) return 0.0;
  return counts_.loss_sum / static_cast<double>(counts_.examples);
}

bool Progress::IsDue() const {
  if (style_ == Style::kSilent) return false;
  if (style_ == Style::kBar) return true;
  return Percent() >= shown_percent_ + kPercentPerLine || clock_.Now() - shown_at_ >= kLineInterval;
}

int Progress::Percent() const {
  if (total_ == 0) return 0;
  return static_cast<int>(100 * std::min(counts_.examples, total_) / total_);
}

void Progress::Print(bool last) {
  const absl::Time now = clock_.Now();
  const double seconds = std::max(absl::ToDoubleSeconds(now - began_), 1e-6);
  // While running, the loss of what came since the last line; at the end, of the epoch.
  Counts recent = counts_;
  if (!last && counts_.examples > shown_.examples) {
    recent = {counts_.examples - shown_.examples, counts_.loss_sum - shown_.loss_sum};
  }
  const double loss =
      recent.examples == 0 ? 0.0 : recent.loss_sum / static_cast<double>(recent.examples);
  std::string line = absl::StrFormat("epoch %d/%d ", epoch_, epochs_);
  if (style_ == Style::kBar && total_ > 0) {
    const int filled = kBarWidth * Percent() / 100;
    absl::StrAppend(&line, "[", std::string(filled, '#'), std::string(kBarWidth - filled, '.'),
                    "] ");
  }
  if (total_ > 0) absl::StrAppendFormat(&line, "%3d %%  ", Percent());
  absl::StrAppendFormat(&line, "%d examples  %.0f examples/s  loss %.4f", counts_.examples,
                        static_cast<double>(counts_.examples) / seconds, loss);
  if (style_ == Style::kBar) {
    out_ << "\r" << line << "\x1b[K" << (last ? "\n" : "") << std::flush;
  } else {
    out_ << line << "\n" << std::flush;
  }
  // On a bar the window for the loss restarts a few times per second only when it holds enough.
  if (style_ != Style::kBar || now - shown_at_ >= absl::Seconds(1)) {
    shown_ = counts_;
    shown_at_ = now;
  }
  shown_percent_ = Percent();
}

}  // namespace embla::train
