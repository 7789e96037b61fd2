#include "server/mover/mover_thread.h"

namespace embla {

MoverThread::MoverThread(const MoverOptions& options, const MoverParts& parts, Metrics* metrics)
    : queue_(std::make_shared<TaskQueue>()),
      mover_(options, parts, metrics, queue_),
      thread_([this] { Run(); }) {}

MoverThread::~MoverThread() {
  queue_->Close();
  thread_.join();
}

void MoverThread::Run() {
  // A queue that is never empty must not keep ticks away.
  constexpr int kTasksPerTick = 64;
  while (queue_->Wait(mover_.Tick())) {
    for (int i = 0; i < kTasksPerTick && queue_->RunOne(); ++i) {
    }
  }
}

}  // namespace embla
