// The values of an enum that a constexpr function with a switch describes: the compiler asks for a
// case of each value, and who needs a list of them gets it from here, not from a second list.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

namespace embla {

namespace enum_values_detail {

template <typename Enum>
constexpr std::size_t NumberCount() {
  static_assert(sizeof(Enum) == 1 && std::is_unsigned_v<std::underlying_type_t<Enum>>);
  return 256;
}

template <typename Enum, bool (*kIsValue)(Enum)>
constexpr std::size_t Count() {
  std::size_t count = 0;
  for (std::size_t number = 0; number < NumberCount<Enum>(); ++number) {
    if (kIsValue(static_cast<Enum>(number))) ++count;
  }
  return count;
}

}  // namespace enum_values_detail

// The values for which kIsValue holds, ascending.
template <typename Enum, bool (*kIsValue)(Enum)>
constexpr auto EnumValues() {
  std::array<Enum, enum_values_detail::Count<Enum, kIsValue>()> values{};
  std::size_t count = 0;
  for (std::size_t number = 0; number < enum_values_detail::NumberCount<Enum>(); ++number) {
    const auto value = static_cast<Enum>(number);
    if (kIsValue(value)) values[count++] = value;
  }
  return values;
}

}  // namespace embla
