#include "client/python/native/fork_guard.h"

#include <atomic>

#include <pthread.h>

namespace embla::python {
namespace {

// Forks between the process that loaded this module and this one. Written in the child only, before
// it has a second thread.
std::atomic<std::uint64_t> generation{0};

}  // namespace

void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
}

ForkGuard::ForkGuard() : generation_(generation.load(std::memory_order_relaxed)) {}

bool ForkGuard::forked() const { return generation.load(std::memory_order_relaxed) != generation_; }

}  // namespace embla::python
