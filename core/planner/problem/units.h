// The planner's integers. Nothing but integers decides: a plan is the same for every compiler,
// optimisation level and machine.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace embla::planner {

// Time in 2^-10 ns: 10^5 tables of 10 s of work each stay below 2^61.
using Ticks = std::int64_t;
inline constexpr Ticks kTicksPerMs = 1'024'000'000;
inline constexpr Ticks kTicksMax = std::int64_t{1} << 61;

using Int128 = __int128;

// Rounds to the nearest tick; too long or not a number gives kTicksMax.
inline Ticks TicksFromMs(double ms) {
  if (!(ms < 2.0e9)) return kTicksMax;
  return ms <= 0 ? 0 : std::llround(ms * static_cast<double>(kTicksPerMs));
}
constexpr double MsFromTicks(Ticks ticks) {
  return static_cast<double>(ticks) / static_cast<double>(kTicksPerMs);
}

inline constexpr double kBytesPerGiB = 1073741824.0;
constexpr double BytesPerMs(double gib_per_s) { return gib_per_s * kBytesPerGiB / 1000.0; }

// A device's slowdown against the reference device, as a fixed-point factor.
inline constexpr int kSlowdownShift = 20;
inline constexpr std::int64_t kSlowdownOne = std::int64_t{1} << kSlowdownShift;

// Time that `work` takes on a device with this slowdown, rounded up.
constexpr Ticks Slowed(Ticks work, std::int64_t slowdown) {
  if (slowdown == kSlowdownOne) return work;
  return static_cast<Ticks>((static_cast<Int128>(work) * slowdown + kSlowdownOne - 1) >>
                            kSlowdownShift);
}

// Kinds of memory. Device memory is a device's own; the other two belong to its host.
enum class Tier : std::uint8_t { kDevice = 0, kHost = 1, kSsd = 2 };
inline constexpr std::size_t kTiers = 3;
using TierBytes = std::array<std::int64_t, kTiers>;

}  // namespace embla::planner
