#include "kernels/cuda/emulated/recording.h"

#include <utility>

#include "kernels/cuda/testing/recording.h"

namespace embla::kernels::cuda {

struct Recording::Graph {
  std::vector<emulated::RecordedWork> work;
};

namespace {

std::vector<emulated::RecordedWork> Record(const Recording::QueueWork& queue) {
  std::vector<emulated::RecordedWork> work;
  auto* const outer = std::exchange(emulated::recorded_work, &work);
  queue(nullptr);
  emulated::recorded_work = outer;
  return work;
}

}  // namespace

Recording::Recording(const QueueWork& queue) : graph_(std::make_unique<Graph>()) {
  graph_->work = Record(queue);
}

Recording::~Recording() = default;

void Recording::RecordAgain(const QueueWork& queue) { graph_->work = Record(queue); }

void Recording::ReplayAsync() {
  for (const auto& each : graph_->work) each.work();
}

void Recording::Replay() { ReplayAsync(); }

std::size_t Recording::launches() const {
  std::size_t launches = 0;
  for (const auto& each : graph_->work) launches += each.launches;
  return launches;
}

}  // namespace embla::kernels::cuda
