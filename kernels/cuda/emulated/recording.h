// Work queued on an emulated stream, kept instead of done: a CUDA graph's twin.
#pragma once

#include <functional>
#include <vector>

namespace embla::kernels::cuda::emulated {

struct RecordedWork {
  std::function<void()> work;  // Has its arguments by value, as a node of a graph has.
  unsigned launches = 1;       // Number of kernels on a GPU.
};

// Null: this thread's work is done as it comes.
inline thread_local std::vector<RecordedWork>* recorded_work = nullptr;

}  // namespace embla::kernels::cuda::emulated
