#include "server/state_store/memory_state_store.h"

#include "gtest/gtest.h"
#include "server/state_store/state_store_conformance.h"
#include "server/state_store/watch_hub.h"

namespace embla {
namespace {

class MemoryHarness {
 public:
  StateStore& store() { return store_; }
  void Reopen() {}

 private:
  MemoryStateStore store_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StateStoreConformance, MemoryHarness);

TEST(WatchHubWatch, ASlowReaderLosesTheOldestEventsAndIsToldOnce) {
  WatchHub hub(/*queued_events_max=*/3);
  const std::unique_ptr<StateWatch> watch = hub.Watch("");
  for (std::uint64_t i = 1; i <= 5; ++i) hub.Publish({{"k", std::to_string(i), Revision{i}}});
  StateWatch::Batch batch = watch->Take(absl::ZeroDuration());
  EXPECT_TRUE(batch.lost);
  ASSERT_EQ(batch.events.size(), 3u);
  EXPECT_EQ(batch.events.front().value, "3");
  hub.Publish({{"k", "6", Revision{6}}});
  batch = watch->Take(absl::ZeroDuration());
  EXPECT_FALSE(batch.lost);
  EXPECT_EQ(batch.events.size(), 1u);
}

TEST(WatchHubWatch, AWatchOutlivesTheStoreAndCanEndBeforeIt) {
  std::unique_ptr<StateWatch> survivor;
  {
    MemoryStateStore store;
    survivor = store.Watch("");
    static_cast<void>(store.Watch(""));
    CommitOne(store, PutOf("a", "1"));
  }
  EXPECT_EQ(survivor->Take(absl::ZeroDuration()).events.size(), 1u);
}

}  // namespace
}  // namespace embla
