// Tries of a call of etcd, one member after the other, until one answers.
#pragma once

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "server/etcd/etcd_kv.h"

namespace embla {

struct EtcdRetry {
  const Clock& clock;
  absl::Duration attempt;
  absl::Duration timeout;
  absl::Duration pause;

  // `call` takes the time for one try and returns a status, or a status with a value. Returns
  // the first answer that is worth no other try, or the last one before the time is over.
  template <typename Try>
  auto Call(const Try& call) const {
    const absl::Time until = clock.Now() + timeout;
    auto answer = call(std::min(attempt, until - clock.Now()));
    while (!answer.ok() && IsWorthRetry(StatusOf(answer)) && clock.Now() + pause < until) {
      absl::SleepFor(pause);
      answer = call(std::min(attempt, until - clock.Now()));
    }
    return answer;
  }

 private:
  static const absl::Status& StatusOf(const absl::Status& status) { return status; }
  template <typename Value>
  static const absl::Status& StatusOf(const absl::StatusOr<Value>& value) {
    return value.status();
  }
};

}  // namespace embla
