// One thread that waits for many sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file_descriptor.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread, unless stated.
class Poller {
 public:
  class Watched {
   public:
    virtual ~Watched() = default;
    // The events of epoll that the descriptor has; none: it was woken. On the poller's thread.
    virtual void OnEvents(std::uint32_t events) = 0;
  };

  // `looks`: before it sleeps (core/base/short_wait.h). Unavailable: no descriptors are left.
  static absl::StatusOr<std::unique_ptr<Poller>> Start(bool looks = false);
  // Forgets all that it watches still.
  ~Poller();

  // Watches `fd`, level-triggered, until Remove; keeps `watched` as long.
  absl::Status Add(int fd, std::uint32_t events, std::shared_ptr<Watched> watched);
  // Requires: `fd` is watched by `watched`.
  void Change(int fd, std::uint32_t events, Watched& watched);
  // Has OnEvents of `watched` run soon, unless it is removed meanwhile.
  void Wake(std::shared_ptr<Watched> watched);
  // On the poller's thread, from OnEvents of `watched`, which lives at least until it returns.
  void Remove(int fd, Watched& watched);

  bool IsCurrentThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  Poller(FileDescriptor epoll, FileDescriptor wake, bool looks);
  void Run();
  void RunWoken();

  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  const bool looks_;
  std::atomic<bool> stopping_ = false;

  Mutex mu_;
  std::unordered_map<Watched*, std::shared_ptr<Watched>> watched_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Watched>> woken_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Watched> removed_;  // By the event that is handled now. The thread's.
  std::thread thread_;                // Last: it uses the others.
};

}  // namespace embla
