#include "core/wire/seal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embla::wire {
namespace {

std::uint64_t ContentOf(const Seal& seal) {
  std::uint64_t content = 0;
  EXPECT_EQ(seal.bytes().size(), sizeof(content));
  std::memcpy(&content, seal.bytes().data(), sizeof(content));
  return content;
}

TEST(Seal, IsWholeUntilItIsBroken) {
  const std::shared_ptr<Seal> seal = Seal::Make();
  EXPECT_EQ(ContentOf(*seal), Seal::kWhole);
  EXPECT_TRUE(seal->is_whole());
  seal->Break();
  EXPECT_NE(ContentOf(*seal), Seal::kWhole);
  EXPECT_FALSE(seal->is_whole());
}

TEST(Seal, EachHasMemoryOfItsOwnWhileItLives) {
  std::set<const std::byte*> places;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Seal>> seals;
    std::set<const std::byte*> now;
    for (int i = 0; i < 1000; ++i) {
      seals.push_back(Seal::Make());
      EXPECT_TRUE(seals.back()->is_whole());
      now.insert(seals.back()->bytes().data());
    }
    EXPECT_EQ(now.size(), seals.size());
    for (const auto& seal : seals) seal->Break();
    places.insert(now.begin(), now.end());
  }
  EXPECT_LT(places.size(), 2000u) << "memory is used again";
}

// A reader may be shown memory as it was before a fork.
TEST(Seal, ABreakShowsInMemoryFromBeforeAFork) {
  const std::shared_ptr<Seal> seal = Seal::Make();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    const bool told = ::read(ends[0], &byte, 1) == 1;
    ::_exit(told && !seal->is_whole() ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  seal->Break();
  EXPECT_EQ(::write(ends[1], "b", 1), 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace embla::wire
