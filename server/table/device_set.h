// A set of a node's devices.
#pragma once

#include <bit>
#include <cstdint>

namespace embla {

inline constexpr std::uint32_t kDevicesPerNodeMax = 64;

// Devices of one node.
class DeviceSet {
 public:
  constexpr DeviceSet() = default;
  static constexpr DeviceSet Of(std::uint32_t device) {
    return DeviceSet(std::uint64_t{1} << device);
  }
  // Devices 0..count-1.
  static constexpr DeviceSet First(std::uint32_t count) {
    return DeviceSet(count == kDevicesPerNodeMax ? ~std::uint64_t{0}
                                                 : (std::uint64_t{1} << count) - 1);
  }

  constexpr bool Has(std::uint32_t device) const { return (bits_ >> device & 1) != 0; }
  constexpr std::uint32_t size() const { return static_cast<std::uint32_t>(std::popcount(bits_)); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool Meets(DeviceSet other) const { return (bits_ & other.bits_) != 0; }
  // The lowest device. Requires: not empty.
  constexpr std::uint32_t lowest() const {
    return static_cast<std::uint32_t>(std::countr_zero(bits_));
  }
  // How many devices of the set are below `device`.
  constexpr std::uint32_t RankOf(std::uint32_t device) const {
    return static_cast<std::uint32_t>(std::popcount(bits_ & ((std::uint64_t{1} << device) - 1)));
  }
  constexpr DeviceSet operator|(DeviceSet other) const { return DeviceSet(bits_ | other.bits_); }
  constexpr DeviceSet& operator|=(DeviceSet other) { return *this = *this | other; }
  constexpr bool operator==(const DeviceSet&) const = default;

 private:
  explicit constexpr DeviceSet(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = 0;
};

}  // namespace embla
