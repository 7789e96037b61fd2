// Launches that are recorded once and replayed over what memory holds by then: a CUDA graph, or,
// emulated, a list of launches. For tests and benches.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/cuda/launch.h"

namespace embla::kernels::cuda {

class Recording {
 public:
  using QueueWork = std::function<void(StreamHandle stream)>;

  // Records what `queue` queues on its stream, without doing any of it now. Arguments that verbs
  // take by value (sizes, addresses, parameters, a step) are those of the recording. Ends the
  // process when something in it cannot be recorded.
  explicit Recording(const QueueWork& queue);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // Takes other arguments into the same launches: the cheap way to the next step.
  void RecordAgain(const QueueWork& queue);

  // Does it all, on the default stream; Replay waits for it.
  void Replay();
  void ReplayAsync();

  // How many kernels a replay launches.
  std::size_t launches() const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace embla::kernels::cuda
