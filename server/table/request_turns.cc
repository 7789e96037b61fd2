#include "server/table/request_turns.h"

#include <algorithm>

namespace embla {
namespace {

constexpr std::size_t kForgetFrom = 1024;

}  // namespace

void RequestTurns::Add(RequestOrigin origin, const Request& request) {
  const auto id = static_cast<std::uint64_t>(origin);
  Line& line = lines_[id];
  line.waiting.push_back(request);
  numbers_.insert(numbers_.end(), request.number);
  if (line.waiting.size() == 1) Announce(id, line);
}

void RequestTurns::Announce(std::uint64_t origin, Line& line) {
  line.due = std::max(now_, line.had_until) + line.waiting.front().cost;
  due_.insert({line.due, origin});
}

std::optional<RequestTurns::Request> RequestTurns::Take(std::uint32_t device, std::uint64_t before,
                                                        DeviceSet full) {
  for (auto it = due_.begin(); it != due_.end(); ++it) {
    const std::uint64_t origin = it->second;
    Line& line = lines_[origin];
    const Request request = line.waiting.front();
    if (!request.devices.Has(device) || request.number >= before || request.devices.Meets(full)) {
      continue;
    }
    now_ += request.cost / static_cast<double>(due_.size());
    line.had_until = line.due;
    line.waiting.pop_front();
    due_.erase(it);
    numbers_.erase(request.number);
    if (!line.waiting.empty()) {
      Announce(origin, line);
    } else if (lines_.size() >= forget_at_) {
      ForgetIdle();
      forget_at_ = std::max(kForgetFrom, 2 * lines_.size());
    }
    return request;
  }
  return std::nullopt;
}

void RequestTurns::ForgetIdle() {
  std::erase_if(lines_, [this](const auto& entry) {
    return entry.second.waiting.empty() && entry.second.had_until <= now_;
  });
}

}  // namespace embla
