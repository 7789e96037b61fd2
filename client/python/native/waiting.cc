#include "client/python/native/waiting.h"

#include <algorithm>
#include <thread>
#include <utility>
#include "core/base/clock.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

constexpr absl::Duration kSignalPeriod = absl::Milliseconds(100);

}  // namespace

bool WaitInterruptibly(const Completion& completion, std::optional<absl::Duration> timeout) {
  return WaitInterruptibly(
      [&completion](absl::Duration period) { return completion.WaitFor(period); }, timeout);
}

bool WaitInterruptibly(const std::function<bool(absl::Duration)>& wait_for,
                       std::optional<absl::Duration> timeout) {
  const absl::Time deadline = timeout ? Clock::Real().Now() + *timeout : absl::InfiniteFuture();
  while (true) {
    const absl::Duration rest = std::max(deadline - Clock::Real().Now(), absl::ZeroDuration());
    {
      const nb::gil_scoped_release no_gil;
      if (wait_for(std::min(rest, kSignalPeriod))) return true;
    }
    if (rest == absl::ZeroDuration()) return false;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

absl::Status RunInterruptibly(std::function<absl::Status()> work,
                              const std::function<void(std::shared_ptr<Completion>)>& abandoned) {
  auto completion = std::make_shared<Completion>();
  {
    const nb::gil_scoped_release no_gil;
    std::thread([completion, work = std::move(work)]() mutable {
      absl::Status status = work();
      work = nullptr;  // Releases the captured objects before the end is reported.
      completion->Set(std::move(status));
    }).detach();
  }
  try {
    WaitInterruptibly(*completion, std::nullopt);
  } catch (const nb::python_error&) {
    if (abandoned) abandoned(completion);
    throw;
  }
  return completion->status();
}

}  // namespace embla::python
