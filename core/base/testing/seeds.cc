#include "core/base/testing/seeds.h"

#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>

namespace embla::testing {
namespace {

std::optional<std::uint32_t> SeedOfEnvironment() {
  const char* const text = std::getenv("EMBLA_TEST_SEED");
  if (text == nullptr) return std::nullopt;
  return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

std::uint32_t TestSeed() { return TestSeeds(1).front(); }

std::vector<std::uint32_t> TestSeeds(std::uint32_t count) {
  const std::optional<std::uint32_t> fixed = SeedOfEnvironment();
  const std::uint32_t first = fixed.has_value() ? *fixed : std::random_device{}();
  std::vector<std::uint32_t> seeds(fixed.has_value() ? 1 : count);
  for (std::uint32_t i = 0; i < seeds.size(); ++i) seeds[i] = first + i;
  std::cout << "EMBLA_TEST_SEED=" << first;
  if (seeds.size() > 1) std::cout << " to " << seeds.back();
  std::cout << std::endl;
  return seeds;
}

}  // namespace embla::testing
