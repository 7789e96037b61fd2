// How a table with synchronous steps steps (docs/synchronous_steps.md): a part of its spec, fixed
// at creation.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace embla {

// The fate of a step that a rank is silent in for step_timeout_ms.
//   kClose  it completes with the other ranks, and the silent one is no member from there on
//   kFail   it fails for all, as do the steps behind it, until ranks join again
enum class OnSilence : std::uint8_t { kClose = 1, kFail = 2 };

struct SyncSpec {
  std::uint32_t step_timeout_ms = 30'000;  // 100 to 3,600,000.
  OnSilence on_silence = OnSilence::kClose;
  // A node takes contributions up to so many steps beyond the one that its slowest unit is at; 1 to
  // 255.
  std::uint32_t steps_ahead_max = 8;

  // InvalidArgument names the field, its value and what is allowed.
  absl::Status Validate() const;

  bool operator==(const SyncSpec&) const = default;
};

}  // namespace embla
