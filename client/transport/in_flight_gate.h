// Bounds the bytes on their way to and from one node: requests beyond that wait in order, up to a
// number, until their deadlines. Contributions to synchronous steps go at once and do not count:
// they are answered when other clients have sent theirs, which may wait for something behind them.
//
// Thread safety: every method may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/transport/data_request.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"

namespace embla::client {

class InFlightGate {
 public:
  static constexpr std::size_t kWaitingMax = 4096;

  // `start` sends a request; its done is the gate's. A request larger than bytes_max is sent alone.
  // `timer` is not owned; outlives this object.
  InFlightGate(std::size_t bytes_max, Timer& timer, std::function<SocketPtr(DataRequest)> start)
      : bytes_max_(bytes_max),
        timer_(timer),
        start_(std::move(start)),
        alarm_(timer, [this] { ExpireWaiting(); }) {}

  // Starts `request` now or later. Its done runs with ResourceExhausted when too many wait, and
  // with DeadlineExceeded when it waited too long. Returns what `start` does, or null.
  SocketPtr Enter(DataRequest request);
  // Fails everything that waits.
  void FailWaiting(const absl::Status& status);

 private:
  bool HasRoom(std::size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return bytes_in_flight_ == 0 || bytes_in_flight_ + bytes <= bytes_max_;
  }
  SocketPtr Start(DataRequest request, std::size_t bytes);
  void Leave(std::size_t bytes);
  void StartWaiting();
  void ExpireWaiting();

  const std::size_t bytes_max_;
  Timer& timer_;  // Not owned; outlives this object.
  const std::function<SocketPtr(DataRequest)> start_;

  Mutex mu_;
  std::size_t bytes_in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<DataRequest> waiting_ ABSL_GUARDED_BY(mu_);
  bool starting_ ABSL_GUARDED_BY(mu_) = false;  // A thread is in StartWaiting.
  Alarm alarm_;                                 // Last: its function uses the others.
};

}  // namespace embla::client
