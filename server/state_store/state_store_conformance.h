// The contract of every StateStore, as a typed test suite. A Harness has
//   StateStore& store();    the open store
//   void Reopen();          as after a clean restart; a store in memory just stays
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/state_store/state_store.h"

namespace embla {

inline StateWrite PutOf(std::string key, std::string value) {
  return {std::move(key), std::move(value)};
}
inline StateWrite DeleteOf(std::string key) { return {std::move(key), std::nullopt}; }

// Commits one write, which must succeed.
inline Revision CommitOne(StateStore& store, StateWrite write) {
  const std::vector<StateWrite> writes = {std::move(write)};
  const absl::StatusOr<Revision> revision = store.Commit({}, writes);
  EXPECT_THAT(revision, testing::IsOk());
  return revision.ok() ? *revision : kAbsent;
}

inline std::map<std::string, std::string> ContentOf(const StateStore& store) {
  std::map<std::string, std::string> content;
  const std::vector<StateEntry> entries = *store.List("");
  for (const StateEntry& entry : entries) content[entry.key] = entry.value;
  return content;
}

template <typename Harness>
class StateStoreConformance : public ::testing::Test {
 protected:
  StateStore& store() { return harness_.store(); }
  void Reopen() { harness_.Reopen(); }

 private:
  Harness harness_;
};

TYPED_TEST_SUITE_P(StateStoreConformance);

TYPED_TEST_P(StateStoreConformance, StartsEmpty) {
  EXPECT_EQ(this->store().revision(), kAbsent);
  EXPECT_TRUE(this->store().List("")->empty());
  const absl::Status missing = this->store().Get("a").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), ::testing::HasSubstr("a"));
}

TYPED_TEST_P(StateStoreConformance, EntriesCarryTheRevisionThatLastWroteThem) {
  StateStore& store = this->store();
  const std::vector<StateWrite> both = {PutOf("a", "1"), PutOf("b", "1")};
  EXPECT_EQ(*store.Commit({}, both), Revision{1});
  EXPECT_EQ(CommitOne(store, PutOf("b", "2")), Revision{2});
  this->Reopen();
  EXPECT_EQ(*this->store().Get("a"), (StateEntry{"a", "1", Revision{1}}));
  EXPECT_EQ(*this->store().Get("b"), (StateEntry{"b", "2", Revision{2}}));
  EXPECT_EQ(this->store().revision(), Revision{2});
}

TYPED_TEST_P(StateStoreConformance, KeepsAnyBytes) {
  const std::string key("k\0\xff\n", 4);
  const std::string value("\0EMBF\xff\n", 7);
  CommitOne(this->store(), PutOf(key, value));
  CommitOne(this->store(), PutOf("empty", ""));
  CommitOne(this->store(), PutOf("zeros", std::string(100'000, '\0')));
  this->Reopen();
  EXPECT_EQ(this->store().Get(key)->value, value);
  EXPECT_EQ(this->store().Get("empty")->value, "");
  EXPECT_EQ(this->store().Get("zeros")->value.size(), 100'000u);
}

TYPED_TEST_P(StateStoreConformance, AFailedCompareChangesNothingAndNamesTheKey) {
  StateStore& store = this->store();
  const Revision first = CommitOne(store, PutOf("a", "1"));
  CommitOne(store, PutOf("b", "1"));
  CommitOne(store, PutOf("b", "2"));
  const std::vector<StateCompare> compares = {{"a", first}, {"b", Revision{2}}};
  const std::vector<StateWrite> writes = {PutOf("a", "9"), DeleteOf("b")};
  const absl::Status status = store.Commit(compares, writes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "state key b is at revision 3, expected 2");
  EXPECT_EQ(ContentOf(store), (std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}}));
  EXPECT_EQ(store.revision(), Revision{3});
}

TYPED_TEST_P(StateStoreConformance, AbsentHoldsOnlyForKeysThatAreNotThere) {
  StateStore& store = this->store();
  const std::vector<StateCompare> absent = {{"a", kAbsent}};
  const std::vector<StateWrite> create = {PutOf("a", "1")};
  EXPECT_THAT(store.Commit(absent, create), testing::IsOk());
  EXPECT_EQ(store.Commit(absent, create).status().code(), absl::StatusCode::kAborted);
  CommitOne(store, DeleteOf("a"));
  EXPECT_THAT(store.Commit(absent, create), testing::IsOk());
}

TYPED_TEST_P(StateStoreConformance, DeletesAndToleratesDeletingWhatIsNotThere) {
  StateStore& store = this->store();
  CommitOne(store, PutOf("a", "1"));
  CommitOne(store, DeleteOf("a"));
  EXPECT_EQ(CommitOne(store, DeleteOf("a")), Revision{3});
  this->Reopen();
  EXPECT_TRUE(ContentOf(this->store()).empty());
  EXPECT_EQ(this->store().revision(), Revision{3});
}

TYPED_TEST_P(StateStoreConformance, ListsByPrefixInTheOrderOfKeys) {
  StateStore& store = this->store();
  for (const char* const key : {"t/2", "t/10", "t", "t/", "u", "s/9", "t/\xff"}) {
    CommitOne(store, PutOf(key, key));
  }
  std::vector<std::string> keys;
  const std::vector<StateEntry> entries = *store.List("t/");
  for (const StateEntry& entry : entries) keys.push_back(entry.key);
  EXPECT_THAT(keys, ::testing::ElementsAre("t/", "t/10", "t/2", "t/\xff"));
}

TYPED_TEST_P(StateStoreConformance, RefusesCommitsOutsideTheLimits) {
  StateStore& store = this->store();
  const std::vector<StateWrite> bad[] = {
      {PutOf("", "1")},
      {PutOf(std::string(kStateKeyBytesMax + 1, 'k'), "1")},
      {PutOf("a", "1"), PutOf("a", "2")},
      {PutOf("a", "1"), DeleteOf("a")},
      {PutOf("a", std::string(kStateCommitBytesMax, 'v'))},
      std::vector<StateWrite>(kStateCommitOpsMax + 1, PutOf("a", "1")),
  };
  for (const std::vector<StateWrite>& writes : bad) {
    EXPECT_EQ(store.Commit({}, writes).status().code(), absl::StatusCode::kInvalidArgument);
  }
  const std::vector<StateCompare> bad_compare = {{"", kAbsent}};
  EXPECT_EQ(store.Commit(bad_compare, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.revision(), kAbsent);
}

TYPED_TEST_P(StateStoreConformance, TakesLargeValuesAndManyWritesAtOnce) {
  std::vector<StateWrite> writes = {PutOf("large", std::string(3'000'000, 'x'))};
  for (int i = 0; i < 1000; ++i) writes.push_back(PutOf("many/" + std::to_string(i), "v"));
  ASSERT_THAT(this->store().Commit({}, writes), testing::IsOk());
  this->Reopen();
  EXPECT_EQ(this->store().Get("large")->value, std::string(3'000'000, 'x'));
  EXPECT_EQ(this->store().List("many/")->size(), 1000u);
  CommitOne(this->store(), PutOf("large", std::string(700'000, 'y')));
  this->Reopen();
  EXPECT_EQ(this->store().Get("large")->value, std::string(700'000, 'y'));
  CommitOne(this->store(), DeleteOf("large"));
  this->Reopen();
  EXPECT_EQ(this->store().List("")->size(), 1000u);
}

TYPED_TEST_P(StateStoreConformance, CommitsOfABatchSeeEachOtherAndLastFromItsEndOn) {
  StateStore& store = this->store();
  CommitOne(store, PutOf("a", "0"));
  store.BeginBatch();
  EXPECT_EQ(CommitOne(store, PutOf("a", "1")), Revision{2});
  const std::vector<StateCompare> newest = {{"a", Revision{2}}};
  const std::vector<StateWrite> writes = {PutOf("a", "2"), PutOf("b", "1")};
  EXPECT_THAT(store.Commit(newest, writes), testing::IsOk());
  EXPECT_EQ(store.Commit(newest, writes).status().code(), absl::StatusCode::kAborted);
  CommitOne(store, DeleteOf("b"));
  ASSERT_THAT(store.EndBatch(), testing::IsOk());
  store.BeginBatch();
  ASSERT_THAT(store.EndBatch(), testing::IsOk());
  this->Reopen();
  EXPECT_EQ(*this->store().Get("a"), (StateEntry{"a", "2", Revision{3}}));
  EXPECT_EQ(this->store().List("")->size(), 1u);
  EXPECT_EQ(this->store().revision(), Revision{4});
}

TYPED_TEST_P(StateStoreConformance, WatchTellsChangesUnderItsPrefixInOrder) {
  StateStore& store = this->store();
  CommitOne(store, PutOf("t/0", "before"));
  const std::unique_ptr<StateWatch> watch = store.Watch("t/");
  CommitOne(store, PutOf("t/1", "x"));
  const std::vector<StateWrite> mixed = {PutOf("u/1", "y"), PutOf("t/2", "z"), DeleteOf("t/9")};
  ASSERT_THAT(store.Commit({}, mixed), testing::IsOk());
  CommitOne(store, DeleteOf("t/1"));
  const StateWatch::Batch batch = watch->Take(absl::ZeroDuration());
  EXPECT_FALSE(batch.lost);
  EXPECT_EQ(batch.events, (std::vector<StateEvent>{{"t/1", "x", Revision{2}},
                                                   {"t/2", "z", Revision{3}},
                                                   {"t/1", std::nullopt, Revision{4}}}));
  EXPECT_TRUE(watch->Take(absl::ZeroDuration()).events.empty());
}

TYPED_TEST_P(StateStoreConformance, WatchIsWokenByACommitOfAnotherThread) {
  const std::unique_ptr<StateWatch> watch = this->store().Watch("a");
  std::thread writer([this] { CommitOne(this->store(), PutOf("a", "1")); });
  const StateWatch::Batch batch = watch->Take(absl::Minutes(1));
  writer.join();
  EXPECT_EQ(batch.events.size(), 1u);
}

// The model: a map with revisions. Commits are random, half of them with compares that may fail.
TYPED_TEST_P(StateStoreConformance, BehavesLikeAMapOverRandomCommitsAndRestarts) {
  const unsigned seed = 20'240'517;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::map<std::string, StateEntry> model;
  std::uint64_t revision = 0;
  for (int step = 0; step < 600; ++step) {
    std::vector<StateCompare> compares;
    std::map<std::string, StateWrite> writes;
    bool holds = true;
    for (unsigned i = random() % 3; i > 0; --i) {
      const std::string key = "key" + std::to_string(random() % 12);
      const auto it = model.find(key);
      const Revision actual = it == model.end() ? kAbsent : it->second.revision;
      const Revision expected = random() % 8 == 0 ? Revision{random() % (revision + 1)} : actual;
      holds = holds && actual == expected;
      compares.push_back({key, expected});
    }
    for (unsigned i = random() % 4; i > 0; --i) {
      const std::string key = "key" + std::to_string(random() % 12);
      writes[key] = random() % 3 == 0
                        ? DeleteOf(key)
                        : PutOf(key, std::string(random() % 50, static_cast<char>(random())));
    }
    std::vector<StateWrite> list;
    for (const auto& [key, write] : writes) list.push_back(write);
    const auto result = this->store().Commit(compares, list);
    ASSERT_EQ(result.ok(), holds) << result.status();
    if (holds) {
      ASSERT_EQ(*result, Revision{++revision});
      for (const auto& [key, write] : writes) {
        if (write.value) {
          model[key] = {key, *write.value, *result};
        } else {
          model.erase(key);
        }
      }
    }
    if (step % 37 == 0) this->Reopen();
    std::vector<StateEntry> expected;
    for (const auto& [key, entry] : model) expected.push_back(entry);
    ASSERT_EQ(*this->store().List(""), expected);
  }
}

TYPED_TEST_P(StateStoreConformance, NoConcurrentIncrementIsLost) {
  constexpr int kThreads = 4;
  constexpr int kIncrements = 25;
  CommitOne(this->store(), PutOf("count", "0"));
  const std::unique_ptr<StateWatch> watch = this->store().Watch("count");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      for (int done = 0; done < kIncrements;) {
        const StateEntry entry = *this->store().Get("count");
        const std::vector<StateCompare> compares = {{"count", entry.revision}};
        const std::vector<StateWrite> writes = {
            PutOf("count", std::to_string(std::stoi(entry.value) + 1))};
        if (this->store().Commit(compares, writes).ok()) ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(this->store().Get("count")->value, std::to_string(kThreads * kIncrements));
  int expected = 0;
  const StateWatch::Batch batch = watch->Take(absl::ZeroDuration());
  for (const StateEvent& event : batch.events) {
    EXPECT_EQ(*event.value, std::to_string(++expected));
  }
  EXPECT_EQ(expected, kThreads * kIncrements);
}

REGISTER_TYPED_TEST_SUITE_P(
    StateStoreConformance, StartsEmpty, EntriesCarryTheRevisionThatLastWroteThem, KeepsAnyBytes,
    AFailedCompareChangesNothingAndNamesTheKey, AbsentHoldsOnlyForKeysThatAreNotThere,
    DeletesAndToleratesDeletingWhatIsNotThere, ListsByPrefixInTheOrderOfKeys,
    RefusesCommitsOutsideTheLimits, TakesLargeValuesAndManyWritesAtOnce,
    CommitsOfABatchSeeEachOtherAndLastFromItsEndOn, WatchTellsChangesUnderItsPrefixInOrder,
    WatchIsWokenByACommitOfAnotherThread, BehavesLikeAMapOverRandomCommitsAndRestarts,
    NoConcurrentIncrementIsLost);

}  // namespace embla
