// A primary's messages to a replica, and its view of the answers, with a network that is the test:
// it sees each message, and answers it when it likes.
#include "server/shard/replicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::testing::replicator_test {
namespace {

using Kind = ReplicaMessage::Kind;

constexpr TableId kTable{4};
constexpr std::uint64_t kReign = 77;
constexpr std::uint64_t kLife = 5;
constexpr absl::Duration kWaitMax = absl::Seconds(30);

// Keeps messages until the test answers them.
class HeldTransport final : public ReplicaTransport {
 public:
  struct Message {
    Kind kind = Kind::kProbe;
    std::uint64_t first_order = 0;  // Several updates: of the first one.
    std::uint64_t order = 0;
    bool first = false;
    bool last = false;
    bool serves = false;
    std::uint64_t life = 0;
    ReplicaDone done = nullptr;  // Keeps what the message views.
  };

  void Send(const NodeSpec&, std::span<const ReplicaMessage> messages, absl::Duration,
            ReplicaDone done) override {
    const ReplicaMessage& last = messages.back();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      EXPECT_EQ(messages[i].order(), messages.front().order() + i);
      EXPECT_EQ(messages[i].kind(), last.kind());
    }
    const auto* const rows = std::get_if<CopiedRows>(&last.content);
    const MutexLock lock(mu_);
    out_.push_back({last.kind(), messages.front().order(), last.order(),
                    rows != nullptr && rows->first, rows != nullptr && rows->last, last.serves,
                    last.life, std::move(done)});
  }

  // Messages without an answer: "probe" or the orders of updates, in the order of sending.
  std::vector<std::string> out() const {
    const MutexLock lock(mu_);
    std::vector<std::string> names;
    for (const Message& message : out_) names.push_back(NameOf(message));
    return names;
  }
  // Takes the first message of that name out, once it has been sent.
  Message Take(const std::string& name) {
    std::optional<Message> taken;
    const auto has_come = [&] {
      const MutexLock lock(mu_);
      const auto it = std::ranges::find_if(
          out_, [&](const Message& message) { return NameOf(message) == name; });
      if (it == out_.end()) return false;
      taken = std::move(*it);
      out_.erase(it);
      return true;
    };
    EMBLA_CHECK(AwaitFor(has_come, kWaitMax, name));
    return *std::move(taken);
  }

 private:
  static std::string NameOf(const Message& message) {
    if (message.kind == Kind::kProbe) return "probe";
    if (message.kind == Kind::kRows) return absl::StrCat("piece ", message.order);
    if (message.first_order == message.order) return absl::StrCat(message.order);
    return absl::StrCat(message.first_order, "-", message.order);
  }

  mutable Mutex mu_;
  std::vector<Message> out_ ABSL_GUARDED_BY(mu_);
};

class ReplicatorTest : public ::testing::Test {
 protected:
  // A primary at order 0 with one replica, which is where `probe` says, and counts.
  void Start(const ReplicaAck& probe, Replicator::Options options = {}) {
    Make(options);
    SetReplicas(PlanVersion{3}, {Replica()});
    replicator_->Begin(kTable, kReign, 0);
    Answer("probe", probe);
    told_ = Answer("probe", probe);  // It serves: nothing was acknowledged so far.
  }
  // The same with a replica that a later plan adds, after update `count`: its copy begins.
  void StartWithNew(Replicator::Options options = {}, int count = 100) {
    Make(options);
    SetReplicas(PlanVersion{3}, {});
    replicator_->Begin(kTable, kReign, 0);
    Append(count);
    SetReplicas(PlanVersion{4}, {Replica()});
    Answer("probe", At(0));
  }
  static NodeSpec Replica() {
    NodeSpec replica;
    replica.id = NodeId{2};
    replica.name = "n2";
    return replica;
  }
  void SetReplicas(PlanVersion version, std::vector<NodeSpec> replicas) {
    const Plan plan(version, "c", {}, std::vector<TablePlan>{});
    replicator_->SetTables(
        plan,
        {{.table = kTable, .primary_since = PlanVersion{3}, .replicas = std::move(replicas)}});
  }
  void Make(Replicator::Options options) {
    options.backoff = absl::Milliseconds(1);
    options.probe_interval = probe_interval_;
    replicator_ = std::make_unique<Replicator>(
        options,
        [this](TableId, std::size_t number, WindowDone done) {
          const MutexLock lock(mu_);
          if (number == 0) ++copies_;
          reads_.push_back({number, std::move(done)});
        },
        [](const CopyGone&, const std::function<void(absl::Status)>& done) {
          done(absl::OkStatus());
        },
        [this](TableId) { ++records_; });
    replicator_->SetTransport(&transport_);
  }
  void TearDown() override {
    const std::future<void> stopped =
        std::async(std::launch::async, [this] { replicator_->Stop(); });
    const auto is_over = [&] {
      while (!transport_.out().empty()) Fail(transport_.out().front());
      if (IsReading()) AnswerRead(true);
      return stopped.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    AwaitFor(is_over, kWaitMax, "the replicator stops");
  }

  static ReplicaAck At(std::uint64_t order, std::uint64_t life = kLife,
                       std::uint64_t early_max = 4) {
    return {.order = order, .life = life, .early_max = early_max};
  }
  // A window has been read: the one that was asked for first. Returns its number.
  std::size_t AnswerRead(bool is_last, std::uint64_t order) {
    Read read;
    const auto has_come = [&] {
      const MutexLock lock(mu_);
      if (reads_.empty()) return false;
      read = std::move(reads_.front());
      reads_.pop_front();
      return true;
    };
    EMBLA_CHECK(AwaitFor(has_come, kWaitMax, "a window is read"));
    read.done(CopiedRows{
        .table = kTable, .order = order, .row_block = Buffer::Allocate(8), .last = is_last});
    return read.number;
  }
  std::size_t AnswerRead(bool is_last) { return AnswerRead(is_last, order_); }
  int copies() {
    const MutexLock lock(mu_);
    return copies_;
  }
  // Until all that has happened has had its effect: the loop takes records first, and then acts.
  void Settle() {
    for (int i = 0; i < 2; ++i) {
      const int before = records_;
      replicator_->SayWritten(CopyConfirmed{kTable});
      AwaitFor([&] { return records_ > before; }, kWaitMax, "the loop goes round");
    }
  }
  void AwaitRead() {
    AwaitFor([this] { return IsReading(); }, kWaitMax, "a window is read");
  }
  bool IsReading() {
    const MutexLock lock(mu_);
    return !reads_.empty();
  }
  ReplicaAck Lost(std::uint64_t life = kLife) {
    ReplicaAck lost = At(0, life);
    lost.need_snapshot = true;
    return lost;
  }

  void Append(int count, std::size_t bytes = 8) {
    for (int i = 0; i < count; ++i) {
      UpdateBatch batch;
      batch.parts.resize(1);
      batch.memory = last_ = Buffer::Allocate(bytes);
      replicator_->Append(kTable, ++order_, std::move(batch));
    }
  }
  HeldTransport::Message Answer(const std::string& name, const ReplicaAck& ack) {
    HeldTransport::Message message = transport_.Take(name);
    message.done(ack);
    return message;
  }
  void Fail(const std::string& name) { transport_.Take(name).done(absl::UnavailableError("lost")); }
  template <typename... Names>
  void ExpectOut(Names... names) {
    const std::vector<std::string> expected = {absl::StrCat(names)...};
    AwaitFor([&] { return transport_.out().size() >= expected.size(); }, kWaitMax, "messages");
    EXPECT_EQ(transport_.out(), expected);
  }
  // Whether all replicas have update `order`, as far as they have said.
  bool IsEverywhere(std::uint64_t order) {
    absl::Status result;
    bool is_told = false;
    Mutex mu;
    replicator_->Wait({{kTable, order}}, absl::InfinitePast(), [&](const absl::Status& status) {
      const MutexLock lock(mu);
      result = status;
      is_told = true;
    });
    AwaitFor(
        [&] {
          const MutexLock lock(mu);
          return is_told;
        },
        kWaitMax, "the waiter is told");
    return result.ok();
  }

  // An update that waits for its answer.
  class Waiting {
   public:
    Waiting(Replicator& replicator, std::uint64_t order, absl::Time deadline) {
      replicator.Wait({{kTable, order}}, deadline, [state = state_](const absl::Status& status) {
        const MutexLock lock(state->mu);
        state->status = status;
      });
    }
    std::optional<absl::Status> answer() const {
      const MutexLock lock(state_->mu);
      return state_->status;
    }
    absl::Status Await() const {
      AwaitFor([this] { return answer().has_value(); }, kWaitMax, "the update is answered");
      return answer().value_or(absl::UnknownError("no answer"));
    }

   private:
    struct State {
      Mutex mu;
      std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
    };
    const std::shared_ptr<State> state_ = std::make_shared<State>();
  };
  Waiting Wait(std::uint64_t order, absl::Time deadline = absl::InfiniteFuture()) {
    return Waiting(*replicator_, order, deadline);
  }

  HeldTransport transport_;
  absl::Duration probe_interval_ = absl::Minutes(10);  // No idle probes.
  std::uint64_t order_ = 0;
  Mutex mu_;
  struct Read {
    std::size_t number = 0;
    WindowDone done = nullptr;
  };
  std::deque<Read> reads_ ABSL_GUARDED_BY(mu_);
  int copies_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<int> records_ = 0;
  SharedBuffer last_;
  HeldTransport::Message told_;
  std::unique_ptr<Replicator> replicator_;
};

TEST_F(ReplicatorTest, OthersFollowAnUpdateOnceOneWasAnswered) {
  Start(At(0));
  Append(9);
  ExpectOut(1);
  Answer("1", At(1));
  ExpectOut(2, 3, 4, 5, 6);  // One in its turn, and as many as the replica takes early.
  Answer("2", At(2));
  ExpectOut(3, 4, 5, 6, 7);
}

// Only so a node is missed, and gets its copy anew, when nobody sends updates.
TEST_F(ReplicatorTest, AReplicaIsAskedAgainThoughItsLastAnswerWokeNobody) {
  probe_interval_ = absl::Seconds(2);
  Start(At(0));
  Append(1);
  Answer("1", At(1));
  Answer("probe", At(1));
  Answer("probe", At(1));
}

TEST_F(ReplicatorTest, AReplicaThatKeepsNothingGetsOneAtATime) {
  Start(At(0, kLife, /*early_max=*/0));
  Append(3);
  Answer("1", At(1, kLife, 0));
  ExpectOut(2);
  Answer("2", At(2, kLife, 0));
  ExpectOut(3);
}

TEST_F(ReplicatorTest, SendsNoMoreAtOnceThanItsOwnLimits) {
  Start(At(0, kLife, 64), {.out_max = 3, .out_bytes_max = 100});
  Append(1, 8);
  Append(5, 40);
  Answer("1", At(1));
  ExpectOut(2, 3);  // 80 bytes.
  Answer("2", At(2));
  Append(2, 1000);
  Answer("3", At(3));
  Answer("4", At(4));
  Answer("5", At(5));
  Answer("6", At(6));
  ExpectOut(7);  // Alone, whatever it has.
  Answer("7", At(7));
  Append(5, 8);
  Answer("8", At(8));
  ExpectOut(9, 10, 11);
}

// A replica that takes several updates in one message.
class TogetherTest : public ReplicatorTest {
 protected:
  // One update is on its way, and those of `bytes` wait until it is answered.
  void StartWaiting(const std::vector<std::size_t>& bytes, Replicator::Options options = {},
                    std::uint64_t updates_max = 64) {
    ReplicaAck probe = At(0, kLife, /*early_max=*/10);
    probe.updates_max = updates_max;
    Start(probe, options);
    Append(1);
    ExpectOut(1);
    for (const std::size_t size : bytes) Append(1, size);
  }
};

TEST_F(TogetherTest, UpdatesThatHaveQueuedMeanwhileGoInOneMessage) {
  StartWaiting(std::vector<std::size_t>(14, 8));
  EXPECT_TRUE(Answer("1", At(1)).serves);
  ExpectOut("2-12");  // One in its turn, and as many as the replica takes early.
  EXPECT_FALSE(IsEverywhere(2));
  EXPECT_TRUE(Answer("2-12", At(12)).serves);
  EXPECT_TRUE(IsEverywhere(12));
  ExpectOut("13-15");
}

TEST_F(TogetherTest, AnUpdateWaitsForNoOthers) {
  StartWaiting({});
  Answer("1", At(1));
  Append(1);
  ExpectOut(2);
  Append(1);
  ExpectOut(2, 3);
  Answer("3", At(3));
  Append(1);
  ExpectOut(2, 4);
}

TEST_F(TogetherTest, NoMoreThanTheReplicaTakesAndItsOwnLimit) {
  StartWaiting({8, 8, 8, 8, 60, 60, 1000, 8}, {.together_bytes_max = 100}, /*updates_max=*/3);
  Answer("1", At(1));
  ExpectOut("2-4", "5-6", 7, 8);
  Answer("2-4", At(4));
  ExpectOut("5-6", 7, 8, 9);
}

TEST_F(TogetherTest, WhileMessagesAreOutOthersWaitUntilOneIsAnsweredOrFull) {
  StartWaiting({}, {.together_bytes_max = 100, .messages_out_max = 2});
  Answer("1", At(1));
  Append(1);
  ExpectOut(2);
  Append(1);
  ExpectOut(2, 3);
  Append(3);
  Settle();
  ExpectOut(2, 3);
  Answer("2", At(2));
  ExpectOut(3, "4-6");
  Append(1, 60);
  Settle();
  ExpectOut(3, "4-6");
  Append(1, 60);
  ExpectOut(3, "4-6", 7);
}

TEST_F(TogetherTest, WhatIsOutToASlowReplicaStaysBounded) {
  StartWaiting(std::vector<std::size_t>(9, 40), {.out_max = 4, .out_bytes_max = 100});
  Answer("1", At(1));
  ExpectOut("2-3");  // 80 bytes.
  Append(8, 8);
  Settle();
  ExpectOut("2-3");
  Answer("2-3", At(3));
  ExpectOut("4-5");
  Answer("4-5", At(5));
  Answer("6-7", At(7));
  Answer("8-9", At(9));
  ExpectOut("10-13");  // 64 bytes, but four.
}

TEST_F(TogetherTest, AfterAFailureAProbeSaysWhichAreSentAgain) {
  StartWaiting(std::vector<std::size_t>(6, 8));
  Answer("1", At(1));
  Fail("2-7");
  ReplicaAck probe = At(3);
  probe.updates_max = 64;
  Answer("probe", probe);
  ExpectOut(4);  // The first of an attempt goes alone.
  EXPECT_FALSE(IsEverywhere(4));
  Answer("4", At(4));
  ExpectOut("5-7");
}

TEST_F(TogetherTest, AReplicaThatDidNotDoAllIsAskedWhereItIs) {
  StartWaiting(std::vector<std::size_t>(6, 8));
  Answer("1", At(1));
  Answer("2-7", At(5));
  ExpectOut("probe");
  EXPECT_FALSE(IsEverywhere(5));
}

TEST_F(ReplicatorTest, AnAnswerIsForAllBeforeItInWhateverOrderTheyCome) {
  Start(At(0));
  Append(4);
  Answer("1", At(1));
  ExpectOut(2, 3, 4);
  EXPECT_FALSE(IsEverywhere(2));
  Answer("4", At(4));
  EXPECT_TRUE(IsEverywhere(4));
  Answer("2", At(2));
  EXPECT_TRUE(IsEverywhere(4));
  Answer("3", At(3));
  Append(1);
  ExpectOut(5);
}

TEST_F(ReplicatorTest, AfterAFailureAProbeSaysWhatIsSentAgain) {
  Start(At(0));
  Append(5);
  Answer("1", At(1));
  ExpectOut(2, 3, 4, 5);
  Fail("2");
  ExpectOut(3, 4, 5, "probe");  // It waits for none of the others.
  Answer("probe", At(1));
  Fail("3");
  Fail("4");
  Fail("5");
  ExpectOut(2);  // The first of an attempt goes alone.
  Answer("2", At(2));
  ExpectOut(3, 4, 5);
}

// The process that gave it may have died since, and the next one be behind.
TEST_F(ReplicatorTest, AnAnswerFromBeforeAFailureIsNothing) {
  Start(At(0));
  Append(3);
  Answer("1", At(1));
  ExpectOut(2, 3);
  Fail("2");
  Answer("probe", At(1, kLife + 1));
  Answer("3", At(3));
  ExpectOut(2);
  EXPECT_FALSE(IsEverywhere(3));
}

TEST_F(ReplicatorTest, ACopyThatHasBegunAnewAmidTheUpdatesIsAskedWhereItIs) {
  Start(At(0));
  Append(3);
  Answer("1", At(1));
  ExpectOut(2, 3);
  Answer("2", At(2, kLife + 1));
  ExpectOut(3, "probe");
  Answer("3", At(3));  // From the process before.
  EXPECT_FALSE(IsEverywhere(3));
  Answer("probe", At(2, kLife + 1));
  ExpectOut(3);
  EXPECT_EQ(Answer("3", At(3, kLife + 1)).life, kLife + 1);
  EXPECT_TRUE(IsEverywhere(3));
}

TEST_F(ReplicatorTest, AReplicaThatDidNothingIsAskedWhereItIs) {
  Start(At(0));
  Append(2);
  Answer("1", At(1));
  Answer("2", At(1));
  ExpectOut("probe");
  Answer("probe", At(1));
  ExpectOut(2);
}

TEST_F(ReplicatorTest, AReplicaThatNeedsASnapshotGetsOneOnce) {
  Start(At(0));
  Append(4);
  Answer("1", At(1));
  ExpectOut(2, 3, 4);
  Answer("2", Lost());
  AnswerRead(/*is_last=*/true);
  ExpectOut(3, 4, "piece 4");
  Answer("3", Lost());
  Fail("4");
  Answer("piece 4", At(4, kLife + 1));
  EXPECT_TRUE(IsEverywhere(4));
  EXPECT_EQ(copies(), 1);
  Answer("probe", At(4, kLife + 1));
  Append(1);
  ExpectOut(5);
}

// A window comes behind the updates that it has, and before all others.
TEST_F(ReplicatorTest, UpdatesGoOnBetweenTheWindowsOfACopy) {
  Start(At(0));
  Append(3);
  Answer("1", Lost());
  AnswerRead(/*is_last=*/false, 3);
  const HeldTransport::Message first = Answer("piece 3", At(3, kLife + 1));
  EXPECT_TRUE(first.first);
  EXPECT_FALSE(first.last);
  AwaitRead();
  Append(2);
  Settle();
  ExpectOut();  // Nobody knows yet which of them the window has.
  AnswerRead(/*is_last=*/false, 4);
  EXPECT_FALSE(Answer("4", At(4, kLife + 1)).serves);
  ExpectOut("piece 4");
  Append(1);
  Settle();
  ExpectOut("piece 4");
  EXPECT_FALSE(IsEverywhere(1)) << "nothing of a copy counts before it is whole";
  EXPECT_FALSE(Answer("piece 4", At(4, kLife + 1)).first);
  AwaitRead();
  ExpectOut(5, 6);  // The window that is being read has all that was applied before that.
  AnswerRead(/*is_last=*/true, 6);
  Answer("6", At(6, kLife + 1));
  ExpectOut(5, "piece 6");  // All that is before it is there, though 5 was not answered.
  EXPECT_FALSE(IsEverywhere(1));
  EXPECT_TRUE(Answer("piece 6", At(6, kLife + 1)).last);
  EXPECT_TRUE(IsEverywhere(6));
  EXPECT_TRUE(Answer("probe", At(6, kLife + 1)).serves);
  EXPECT_EQ(copies(), 1);
}

// The third window of a copy fails; the copy has two, and is at update 3.
class FailedWindowTest : public ReplicatorTest {
 protected:
  void FailWindow() {
    Start(At(0));
    Append(1);
    Answer("1", Lost());
    AnswerRead(/*is_last=*/false);
    Answer("piece 1", At(1, kLife + 1));
    AnswerRead(/*is_last=*/false);
    Answer("piece 1", At(1, kLife + 1));
    AwaitRead();
    Append(2);
    AnswerRead(/*is_last=*/false);
    Answer("2", At(2, kLife + 1));
    Answer("3", At(3, kLife + 1));
    Fail("piece 3");
  }
};

TEST_F(FailedWindowTest, IsReadAnewAndSentBehindWhatCameMeanwhile) {
  FailWindow();
  Append(1);
  ReplicaAck half = Lost(kLife + 1);
  half.order = 3;
  Answer("probe", half);
  EXPECT_EQ(AnswerRead(/*is_last=*/true), 2u);
  EXPECT_FALSE(Answer("4", At(4, kLife + 1)).serves);
  EXPECT_FALSE(IsEverywhere(1));
  const HeldTransport::Message piece = Answer("piece 4", At(4, kLife + 1));
  EXPECT_FALSE(piece.first);
  EXPECT_TRUE(piece.last);
  EXPECT_TRUE(IsEverywhere(4));
  EXPECT_EQ(copies(), 1);
}

TEST_F(FailedWindowTest, OfAProcessThatHasDiedBeginsTheCopyAgain) {
  FailWindow();
  ReplicaAck half = Lost(kLife + 2);
  half.order = 3;
  Answer("probe", half);
  AnswerRead(/*is_last=*/true);
  EXPECT_TRUE(Answer("piece 3", At(3, kLife + 3)).first);
  EXPECT_TRUE(IsEverywhere(3));
  EXPECT_EQ(copies(), 2);
}

// Its answer was lost: so there may be more than the primary knows of.
TEST_F(FailedWindowTest, ThatWasTheLastOneMayHaveMadeTheCopyWhole) {
  FailWindow();
  Answer("probe", At(3, kLife + 1));
  EXPECT_TRUE(IsEverywhere(3));
  EXPECT_EQ(copies(), 1);
}

TEST_F(FailedWindowTest, OfAnOlderBuildThatDoesNotSayWhereItIsBeginsTheCopyAgain) {
  FailWindow();
  Answer("probe", Lost(kLife + 1));
  AnswerRead(/*is_last=*/true);
  EXPECT_TRUE(Answer("piece 3", At(3, kLife + 2)).first);
  EXPECT_TRUE(IsEverywhere(3));
  EXPECT_EQ(copies(), 2);
}

// A replica too slow for the updates that come in meanwhile.
TEST_F(ReplicatorTest, ACopyBeginsAgainWhenTheUpdatesBehindItAreNotKept) {
  Start(At(0), {.backlog_max = 2});
  Append(1);
  Answer("1", Lost());
  AnswerRead(/*is_last=*/false);
  Answer("piece 1", At(1, kLife + 1));
  AwaitRead();
  Append(9);
  AwaitFor([&] { return copies() == 2; }, kWaitMax, "the copy begins again");
  AnswerRead(/*is_last=*/true, 1);  // For the copy before: it is nothing.
  AnswerRead(/*is_last=*/true);
  EXPECT_TRUE(Answer("piece 10", At(10, kLife + 2)).first);
  EXPECT_TRUE(IsEverywhere(10));
  EXPECT_EQ(copies(), 2);
}

TEST_F(ReplicatorTest, AReplicaThatAnswersMayBeFurtherBehindThanOneThatDoesNot) {
  Start(At(0), {.backlog_max = 2});
  Append(8);
  for (std::uint64_t order = 1; order <= 8; ++order) Answer(absl::StrCat(order), At(order));
  EXPECT_TRUE(IsEverywhere(8));
  EXPECT_EQ(copies(), 0);
  Append(8);
  Fail("9");
  Answer("probe", At(8));
  AwaitFor([&] { return copies() == 1; }, kWaitMax, "a copy in place of updates");
}

// Trainers may be faster than a copy: it would never end.
TEST_F(ReplicatorTest, UpdatesWaitWhileANewCopyIsHalfABacklogBehind) {
  StartWithNew({.backlog_max = 8});
  AnswerRead(/*is_last=*/false);
  Answer("piece 100", At(100, kLife + 1));
  AwaitRead();
  Append(4);
  EXPECT_THAT(Wait(104).Await(), IsOk()) << "a copy that does not count is not waited for";
  Append(1);
  const Waiting held = Wait(105);
  Settle();
  EXPECT_FALSE(held.answer().has_value());
  AnswerRead(/*is_last=*/false, 105);
  Answer("101", At(101, kLife + 1));
  EXPECT_THAT(held.Await(), IsOk());
}

TEST_F(ReplicatorTest, UpdatesWaitWhileANewCopyIsHalfTheBytesOfABacklogBehind) {
  StartWithNew({.backlog_bytes_max = 1000});
  AnswerRead(/*is_last=*/false);
  Answer("piece 100", At(100, kLife + 1));
  AwaitRead();
  Append(1, 500);
  EXPECT_THAT(Wait(101).Await(), IsOk());
  Append(1);
  const Waiting held = Wait(102);
  Settle();
  EXPECT_FALSE(held.answer().has_value());
  AnswerRead(/*is_last=*/false, 102);
  Answer("101", At(101, kLife + 1));
  EXPECT_THAT(held.Await(), IsOk());
}

TEST_F(ReplicatorTest, ANewCopyThatFailsHoldsNoUpdate) {
  StartWithNew({.backlog_max = 8, .timeout = absl::Hours(1)});
  AnswerRead(/*is_last=*/false);
  Answer("piece 100", At(100, kLife + 1));
  AnswerRead(/*is_last=*/false);
  ExpectOut("piece 100");
  Append(6);
  const Waiting held = Wait(106);
  Settle();
  EXPECT_FALSE(held.answer().has_value());
  Fail("piece 100");
  EXPECT_THAT(held.Await(), IsOk());
  ExpectOut("probe");  // It does not answer any more.
  Append(2);
  EXPECT_THAT(Wait(108).Await(), IsOk());
}

// Updates that were kept for it are of no use.
TEST_F(ReplicatorTest, ANewCopyThatBeginsAgainIsBehindNothing) {
  StartWithNew({.backlog_max = 8, .timeout = absl::Hours(1)});
  AnswerRead(/*is_last=*/false);
  Answer("piece 100", At(100, kLife + 1));
  AwaitRead();
  Append(6);
  const Waiting held = Wait(106);
  Settle();
  EXPECT_FALSE(held.answer().has_value());
  AnswerRead(/*is_last=*/false, 106);
  Answer("101", Lost(kLife + 1));
  EXPECT_THAT(held.Await(), IsOk());
}

// A process that was stopped, or a link that was cut: nothing fails, and nothing comes.
TEST_F(ReplicatorTest, ANewCopyHoldsAnUpdateForALimitedTime) {
  StartWithNew({.backlog_max = 8, .timeout = absl::Milliseconds(1)});
  AnswerRead(/*is_last=*/false);
  ExpectOut("piece 100");
  Append(20);
  EXPECT_THAT(Wait(120).Await(), IsOk());
}

TEST_F(ReplicatorTest, ANewCopyLetsNoUpdateMissItsDeadline) {
  StartWithNew({.backlog_max = 8, .timeout = absl::Hours(1)});
  AnswerRead(/*is_last=*/false);
  ExpectOut("piece 100");
  Append(20);
  EXPECT_THAT(Wait(120, absl::Now() + absl::Milliseconds(20)).Await(), IsOk());
}

TEST_F(ReplicatorTest, ANewReplicaIsNotNearIfItNeedsACopy) {
  StartWithNew({}, 1);
  AnswerRead(/*is_last=*/false);
  ExpectOut("piece 1");
  Append(1);
  EXPECT_THAT(Wait(2).Await(), IsOk());
}

TEST_F(ReplicatorTest, AWholeCopyCountsWhenItIsNear) {
  StartWithNew();
  AnswerRead(/*is_last=*/true);
  ExpectOut("piece 100");
  Append(100);
  EXPECT_THAT(Wait(200).Await(), IsOk());
  Answer("piece 100", At(100, kLife + 1));
  ExpectOut(101);
  const Waiting held = Wait(200);
  for (std::uint64_t order = 101; order <= 135; ++order) {
    EXPECT_FALSE(Answer(absl::StrCat(order), At(order, kLife + 1)).serves);
  }
  Settle();
  EXPECT_FALSE(held.answer().has_value()) << "it would never come near";
  EXPECT_TRUE(IsEverywhere(200)) << "it does not count yet";
  Answer("136", At(136, kLife + 1));
  Settle();
  EXPECT_FALSE(IsEverywhere(200)) << "it counts";
  for (std::uint64_t order = 137; order < 200; ++order) {
    EXPECT_FALSE(Answer(absl::StrCat(order), At(order, kLife + 1)).serves);
  }
  EXPECT_FALSE(held.answer().has_value());
  EXPECT_TRUE(Answer("200", At(200, kLife + 1)).serves);
  EXPECT_THAT(held.Await(), IsOk());
}

// Updates that are out are viewed by whoever sends them; a backlog that grows too long is dropped.
TEST_F(ReplicatorTest, AnUpdateThatIsOutIsKeptThoughTheBacklogIsDropped) {
  Start(At(0), {.backlog_max = 2});
  Append(1);
  ExpectOut(1);
  const std::weak_ptr<const void> first = last_.memory();
  Append(8);
  EXPECT_FALSE(first.expired());
  Answer("1", At(1));
  AnswerRead(/*is_last=*/true);
  Answer("piece 9", At(9, kLife + 1));
  AwaitFor([&] { return first.expired(); }, kWaitMax, "the update is let go");
}

TEST_F(ReplicatorTest, ACopyIsToldThatItServesByAnyMessageThatBringsItThere) {
  Start(At(0));
  EXPECT_TRUE(told_.serves);
  EXPECT_EQ(told_.life, kLife);
  Append(2);
  Answer("1", At(1));
  EXPECT_TRUE(Answer("2", At(2)).serves);
  Append(1);
  Fail("3");
  Answer("probe", Lost(kLife + 1));
  AnswerRead(/*is_last=*/true);
  HeldTransport::Message told = Answer("piece 3", At(3, kLife + 2));
  EXPECT_FALSE(told.serves);
  told = Answer("probe", At(3, kLife + 2));
  EXPECT_TRUE(told.serves);
  EXPECT_EQ(told.life, kLife + 2);
}

}  // namespace
}  // namespace embla::testing::replicator_test
