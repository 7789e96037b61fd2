#include "tools/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::train {
namespace {

constexpr absl::Duration kPauseMax = absl::Seconds(2);

client::CallOptions CallOptionsOf(const TrainerOptions& options) {
  client::CallOptions call;
  call.wire = options.wire;
  call.combine_duplicates = false;  // A batch has none.
  return call;
}

std::span<const std::uint32_t> BatchOf(std::span<const std::uint32_t> order, std::size_t number,
                                       std::size_t batch) {
  const std::size_t begin = number * batch;
  return order.subspan(begin, std::min(batch, order.size() - begin));
}

}  // namespace

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

Trainer::Trainer(client::Client& client, const ModelLayout& layout, const TrainerOptions& options,
                 const std::atomic<bool>& stop)
    : client_(client), options_(options), stop_(stop) {
  EMBLA_CHECK(options.batch > 0);
  // The batch at hand, the next one, and those whose updates are on their way.
  const std::size_t slots = 2 + (options.synchronous ? 0 : options.updates_in_flight);
  for (std::size_t i = 0; i < slots; ++i) slots_.push_back(std::make_unique<Slot>(layout, finder_));
}

Trainer::~Trainer() { Drain(absl::OkStatus()).IgnoreError(); }

absl::Status Trainer::Run(const Examples& examples, std::span<const std::uint32_t> order,
                          const ProgressCallback& progress) {
  return Drain(RunBatches(examples, order, progress));
}

absl::Status Trainer::Predict(const Examples& examples, std::span<const std::uint32_t> order,
                              std::span<float> scores_out) {
  EMBLA_CHECK(scores_out.size() == order.size());
  return Drain(PredictBatches(examples, order, scores_out));
}

absl::Status Trainer::RunBatches(const Examples& examples, std::span<const std::uint32_t> order,
                                 const ProgressCallback& progress) {
  const std::size_t batches = (order.size() + options_.batch - 1) / options_.batch;
  if (batches == 0) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(Begin(SlotOf(0), examples, BatchOf(order, 0, options_.batch)));
  for (std::size_t b = 0; b < batches && !stop_.load(std::memory_order_relaxed); ++b) {
    const auto begin_next = [&]() -> absl::Status {
      if (b + 1 == batches) return absl::OkStatus();
      return Begin(SlotOf(b + 1), examples, BatchOf(order, b + 1, options_.batch));
    };
    if (!options_.synchronous) EMBLA_RETURN_IF_ERROR(begin_next());
    EMBLA_RETURN_IF_ERROR(Step(SlotOf(b), progress));
    if (options_.synchronous) {
      EMBLA_RETURN_IF_ERROR(AwaitUpdate(SlotOf(b)));
      EMBLA_RETURN_IF_ERROR(begin_next());
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::PredictBatches(const Examples& examples, std::span<const std::uint32_t> order,
                                     std::span<float> scores_out) {
  const std::size_t batches = (order.size() + options_.batch - 1) / options_.batch;
  for (std::size_t b = 0; b <= batches && !stop_.load(std::memory_order_relaxed); ++b) {
    if (b < batches) {
      EMBLA_RETURN_IF_ERROR(Begin(SlotOf(b), examples, BatchOf(order, b, options_.batch)));
    }
    if (b == 0) continue;
    Slot& slot = SlotOf(b - 1);
    EMBLA_RETURN_IF_ERROR(AwaitLookup(slot));
    std::ranges::copy(slot.batch.Score(options_.prior),
                      scores_out.begin() + static_cast<std::ptrdiff_t>((b - 1) * options_.batch));
  }
  return absl::OkStatus();
}

absl::Status Trainer::Begin(Slot& slot, const Examples& examples,
                            std::span<const std::uint32_t> order) {
  EMBLA_RETURN_IF_ERROR(AwaitUpdate(slot));
  slot.batch.Fill(examples, order);
  client_.LookupAsync(slot.batch.Lookups(), CallOptionsOf(options_), slot.lookup.Begin());
  return absl::OkStatus();
}

absl::Status Trainer::Step(Slot& slot, const ProgressCallback& progress) {
  EMBLA_RETURN_IF_ERROR(AwaitLookup(slot));
  const auto size = static_cast<float>(slot.batch.size());
  slot.batch.Score(options_.prior);
  const double loss =
      slot.batch.Differentiate(options_.loss, options_.gradient_mean ? 1.0f / size : 1.0f);
  if (!std::isfinite(loss)) {
    return absl::AbortedError(
        "the loss is not a finite number any more: training diverged. Lower --lr, or drop the "
        "tables if an earlier run left them so");
  }
  client_.UpdateAsync(slot.batch.Gradients(), CallOptionsOf(options_), slot.update.Begin());
  progress(slot.batch.size(), loss);
  return absl::OkStatus();
}

absl::Status Trainer::AwaitLookup(Slot& slot) {
  absl::Status status = slot.lookup.Wait();
  absl::Duration pause = options_.first_pause;
  absl::Duration waited;
  while (IsTransient(status) && waited < options_.patience && !stop_.load()) {
    absl::SleepFor(pause);
    waited += pause;
    pause = std::min(2 * pause, kPauseMax);
    status = client_.Lookup(slot.batch.Lookups(), CallOptionsOf(options_));
  }
  return status;
}

absl::Status Trainer::AwaitUpdate(Slot& slot) {
  const absl::Status status = slot.update.Wait();
  // Losing one batch is better than losing the run; the lookups bound how long this may go on.
  if (IsTransient(status) && options_.patience > absl::ZeroDuration()) {
    ++updates_unknown_;
    return absl::OkStatus();
  }
  return status;
}

// Waits for everything in flight; the first error wins.
absl::Status Trainer::Drain(absl::Status status) {
  for (const std::unique_ptr<Slot>& slot : slots_) {
    slot->lookup.Wait().IgnoreError();
    status.Update(AwaitUpdate(*slot));
  }
  return status;
}

}  // namespace embla::train
