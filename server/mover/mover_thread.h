// The thread of a mover: runs its queue and its ticks.
#pragma once

#include <memory>
#include <thread>

#include "server/mover/mover.h"
#include "server/mover/task_queue.h"

namespace embla {

class MoverThread {
 public:
  // Arguments of Mover's constructor. The parts outlive this object.
  MoverThread(const MoverOptions& options, const MoverParts& parts, Metrics* metrics);
  // Ends the thread; what was not done is dropped, as if the process had died here.
  ~MoverThread();

  Mover& mover() { return mover_; }

 private:
  void Run();

  const std::shared_ptr<TaskQueue> queue_;
  Mover mover_;
  std::thread thread_;
};

}  // namespace embla
