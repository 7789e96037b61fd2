// Damages the files of a closed log: its next opening says DATA_LOSS, where, and what to do; it
// never goes on with less than it had. After a crash the same is true of all that a note covers.
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/log_note.h"
#include "server/log/node_log.h"
#include "server/log/testing/simulated_storage.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;
using Files = std::map<std::string, std::string>;

class LogDamage : public ::testing::Test {
 protected:
  static constexpr int kRecords = 12;

  void SetUp() override {
    const auto log = Open();
    ASSERT_THAT(log, IsOk());
    Write(**log);
    ASSERT_THAT((*log)->Close(), IsOk());
    whole_ = Read();
    for (const auto& [name, content] : whole_) {
      if (SegmentNumber(name)) segments_.push_back(name);
    }
    ASSERT_GE(segments_.size(), 4u);
  }

  absl::StatusOr<std::unique_ptr<NodeLog>> Open() {
    replayed_ = 0;
    NodeLogOptions options;
    options.segment_bytes_max = 1024;
    return NodeLog::Open(disk_, options, [this](const LogRecordView&) {
      ++replayed_;
      return absl::OkStatus();
    });
  }

  static void Write(NodeLog& log) {
    for (int i = 0; i < kRecords; ++i) {
      // Some have whole sectors of zeros, which do not pass for sectors that were never written.
      const std::string payload = i % 3 == 0 ? std::string(700, '\0') + "end"
                                             : std::string(250, static_cast<char>('a' + i));
      ASSERT_THAT(log.WriteControl(1, payload), IsOk());
    }
  }

  Files Read() const {
    Files files;
    const std::vector<std::string> names = *disk_.List();
    for (const std::string& name : names) files[name] = *disk_.Read(name);
    return files;
  }

  void Put(const Files& files) {
    const std::vector<std::string> names = *disk_.List();
    for (const std::string& name : names) {
      if (!files.contains(name)) {
        ASSERT_THAT(disk_.Remove(name), IsOk());
      }
    }
    for (const auto& [name, content] : files) disk_.Overwrite(name, content);
  }

  void ExpectDataLoss(const Files& damaged, const std::string& file) {
    Put(damaged);
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("disk/" + file));
    EXPECT_THAT(std::string(status.message()), HasSubstr("at offset"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("restore the directory"));
    EXPECT_LE(replayed_, kRecords);
    EXPECT_EQ(Read(), damaged);
  }

  SimulatedStorage disk_;
  Files whole_;
  std::vector<std::string> segments_;
  int replayed_ = 0;
};

TEST_F(LogDamage, NoneLetsItGoOn) {
  Put(whole_);
  ASSERT_THAT(Open(), IsOk());
  EXPECT_EQ(replayed_, kRecords);
}

TEST_F(LogDamage, AFlippedBitInAnyFile) {
  std::mt19937_64 random(7);
  for (const auto& [name, content] : whole_) {
    if (content.empty()) continue;  // The spare.
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(name);
      Files damaged = whole_;
      char& byte = damaged[name][random() % content.size()];
      byte = static_cast<char>(byte ^ (1 << random() % 8));
      ExpectDataLoss(damaged, name);
    }
  }
}

TEST_F(LogDamage, AMissingSegmentAlsoTheNewestOne) {
  for (const std::string& name : segments_) {
    Files damaged = whole_;
    damaged.erase(name);
    ExpectDataLoss(damaged, name);
  }
}

TEST_F(LogDamage, SeveralOfTheNewestSegmentsMissingUpToAllOfThem) {
  Files damaged = whole_;
  for (std::size_t left = segments_.size(); left-- > 0;) {
    damaged.erase(segments_[left]);
    ExpectDataLoss(damaged, segments_.back());
  }
}

TEST_F(LogDamage, TwoSegmentsSwapped) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    for (std::size_t j = i + 1; j < segments_.size(); ++j) {
      Files damaged = whole_;
      std::swap(damaged[segments_[i]], damaged[segments_[j]]);
      ExpectDataLoss(damaged, segments_[j]);
    }
  }
}

TEST_F(LogDamage, AnySegmentCutAnywhere) {
  for (const std::string& name : segments_) {
    const std::size_t size = whole_[name].size();
    for (std::size_t cut = 0; cut < size; cut += 1 + size / 50) {
      Files damaged = whole_;
      damaged[name].resize(cut);
      ExpectDataLoss(damaged, name);
    }
  }
}

TEST_F(LogDamage, TheNewestSegmentOfAnotherLog) {
  SimulatedStorage other;
  const NodeLogOptions options{.segment_bytes_max = 1024};
  const auto ignore = [](const LogRecordView&) { return absl::OkStatus(); };
  {
    const auto log = NodeLog::Open(other, options, ignore);
    ASSERT_THAT(log, IsOk());
    Write(**log);
  }
  Files damaged = whole_;
  damaged[segments_.back()] = *other.Read(segments_.back());
  Put(damaged);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(LogDamage, AfterACrashWhatWasThereAtTheStartIsCoveredAndWhatCameLaterIsATornTail) {
  const auto log = Open();
  ASSERT_THAT(log, IsOk());
  const Files at_start = Read();
  ASSERT_THAT((*log)->WriteControl(1, "later"), IsOk());
  const Files crashed = Read();
  const std::string newest = segments_.back();
  ASSERT_GT(crashed.at(newest).size(), at_start.at(newest).size());
  Files cut = crashed;
  cut[newest].resize(at_start.at(newest).size() - 1);
  ExpectDataLoss(cut, newest);
  cut[newest] = at_start.at(newest);
  Put(cut);
  EXPECT_THAT(Open(), IsOk());
  EXPECT_EQ(replayed_, kRecords);
}

TEST(LogNoteFormat, RoundTripsAndRefusesAnyDamage) {
  const LogNote note{0x1234567890abcdef, 42, LogLsn{4711}};
  const std::string content = EncodeLogNote(note);
  EXPECT_EQ(content.size(), 44u);
  EXPECT_EQ(*DecodeLogNote(content, "f"), note);
  for (std::size_t i = 0; i < content.size(); ++i) {
    std::string bad = content;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_EQ(DecodeLogNote(bad, "f").status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(DecodeLogNote(content.substr(0, i), "f"), Not(IsOk()));
  }
}

}  // namespace
}  // namespace embla
