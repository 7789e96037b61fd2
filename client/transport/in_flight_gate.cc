#include "client/transport/in_flight_gate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace embla::client {

SocketPtr InFlightGate::Enter(DataRequest request) {
  if (request.is_contribution()) return start_(std::move(request));
  const std::size_t bytes = request.bytes();
  std::size_t waiting = 0;
  {
    MutexLock lock(mu_);
    waiting = waiting_.size();
    if (waiting == 0 && HasRoom(bytes)) {
      bytes_in_flight_ += bytes;
    } else if (waiting < kWaitingMax) {
      request.Own();
      alarm_.NoLaterThan(request.deadline);
      waiting_.push_back(std::move(request));
      return nullptr;
    }
  }
  if (waiting == 0) return Start(std::move(request), bytes);
  request.done({.status = absl::ResourceExhaustedError(absl::StrCat(
                    waiting, " requests wait for this node already: send fewer at a time"))});
  return nullptr;
}

SocketPtr InFlightGate::Start(DataRequest request, std::size_t bytes) {
  request.done = [this, bytes, done = std::move(request.done)](NodeReply reply) {
    Leave(bytes);
    done(std::move(reply));
  };
  return start_(std::move(request));
}

void InFlightGate::Leave(std::size_t bytes) {
  {
    MutexLock lock(mu_);
    bytes_in_flight_ -= bytes;
  }
  StartWaiting();
}

// One thread at a time: a request that fails at once would otherwise recurse through the queue.
void InFlightGate::StartWaiting() {
  {
    MutexLock lock(mu_);
    if (starting_) return;
    starting_ = true;
  }
  while (true) {
    std::optional<DataRequest> next;
    std::size_t bytes = 0;
    {
      MutexLock lock(mu_);
      if (waiting_.empty() || !HasRoom(waiting_.front().bytes())) {
        starting_ = false;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
      bytes = next->bytes();
      bytes_in_flight_ += bytes;
    }
    Start(*std::move(next), bytes);
  }
}

void InFlightGate::FailWaiting(const absl::Status& status) {
  std::deque<DataRequest> failed;
  {
    MutexLock lock(mu_);
    failed.swap(waiting_);
  }
  for (DataRequest& request : failed) request.done({.status = status});
}

void InFlightGate::ExpireWaiting() {
  std::vector<DataRequest> expired;
  {
    MutexLock lock(mu_);
    const absl::Time now = timer_.Now();
    for (auto request = waiting_.begin(); request != waiting_.end();) {
      if (request->deadline > now) {
        alarm_.NoLaterThan(request->deadline);
        ++request;
        continue;
      }
      expired.push_back(std::move(*request));
      request = waiting_.erase(request);
    }
  }
  for (DataRequest& request : expired) {
    request.done({.status = absl::DeadlineExceededError("waited for earlier requests")});
  }
}

}  // namespace embla::client
