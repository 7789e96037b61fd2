// Seeds of random tests: others in every run, and those of a failed run again by EMBLA_TEST_SEED.
#pragma once

#include <cstdint>
#include <vector>

namespace embla::testing {

// Returns the environment's seed, or a random one, and prints it, so that a failure names it.
std::uint32_t TestSeed();

// `count` in a row from a random one; only that of the environment where there is one.
std::vector<std::uint32_t> TestSeeds(std::uint32_t count);

}  // namespace embla::testing
