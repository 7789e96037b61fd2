// Chooses the next request on a node: requests wait here, by origin, and the devices' queues stay
// short, so that who asks for little waits for little, whatever others ask for.
//
// The idea is that of weighted fair queueing. `now_` is a virtual time: how much each origin would
// have been given by now if all that wait were served at once, in equal shares. A request that
// comes first in its origin's line would then begin now, or when the one before it would have
// ended, and is due when it would have ended: that plus its cost. The request that is due first is
// next. An origin that has had less than its share is so served at once; one that has had more
// waits until the others have had as much; and as `now_` goes on, none waits for ever.
//
// Requests of one origin stay in their order. A request of several devices is taken once for all of
// them (DeviceExecutors), so devices agree on the order of what they have in common.
//
// Tests: request_turns_test.cc (shares, order, bounds of the wait).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "server/table/device_set.h"

namespace embla {

class DeviceTask;

// The sender of a request: its session, or its connection. Only equality has a meaning.
enum class RequestOrigin : std::uint64_t {};

// Thread safety: none.
class RequestTurns {
 public:
  struct Request {
    DeviceTask* task = nullptr;  // Not owned here.
    DeviceSet devices;
    std::uint64_t number = 0;  // Ascending in the order of Add.
    double cost = 1;           // In any unit; above 0.
  };

  void Add(RequestOrigin origin, const Request& request);

  // Takes the next request for `device`: of those that are first in their origin's line, have a
  // number below `before` and need none of the `full` devices.
  std::optional<Request> Take(std::uint32_t device, std::uint64_t before, DeviceSet full);

  bool empty() const { return numbers_.empty(); }
  // The lowest number that waits. Requires: not empty.
  std::uint64_t first_number() const { return *numbers_.begin(); }
  // Origins that are remembered, with requests or without.
  std::size_t origins() const { return lines_.size(); }

 private:
  struct Line {
    std::deque<Request> waiting;
    double due = 0;        // Due time of the first request.
    double had_until = 0;  // When its last taken request would have ended.
  };
  using Due = std::pair<double, std::uint64_t>;  // With the origin.

  void Announce(std::uint64_t origin, Line& line);
  // Origins that wait for nothing and have had no more than their share.
  void ForgetIdle();

  double now_ = 0;
  std::size_t forget_at_ = 0;  // Number of lines; grows with them, so that forgetting costs little.
  std::unordered_map<std::uint64_t, Line> lines_;
  std::set<Due> due_;  // Every line that has a request.
  std::set<std::uint64_t> numbers_;
};

}  // namespace embla
