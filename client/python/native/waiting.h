// Waiting that Python's signal handlers interrupt: Ctrl-C raises KeyboardInterrupt after at most
// 100 ms.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <nanobind/nanobind.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/python/native/completion.h"

namespace embla::python {

// Waits with the GIL released. Returns done(); throws nanobind::python_error where a signal handler
// raised. Requires the GIL. None: no limit.
bool WaitInterruptibly(const Completion& completion, std::optional<absl::Duration> timeout);
// The same for anything that can be awaited for a while: `wait_for` returns whether it is there.
bool WaitInterruptibly(const std::function<bool(absl::Duration)>& wait_for,
                       std::optional<absl::Duration> timeout);

// Runs `work`, which may wait in C++ for long, on a thread of its own, and waits for it as above.
// `work` owns what it uses: after an exception it runs on by itself, and its result is lost.
// `abandoned`, where given, is called then, with the GIL, and what will be set when `work` is over.
absl::Status RunInterruptibly(
    std::function<absl::Status()> work,
    const std::function<void(std::shared_ptr<Completion>)>& abandoned = nullptr);

}  // namespace embla::python
