#include "server/shard/reply_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Buffer Letters(std::size_t size) {
  Buffer buffer = Buffer::Allocate(size);
  for (std::size_t i = 0; i < size; ++i) buffer.data()[i] = static_cast<std::byte>('a' + i % 26);
  return buffer;
}

class ReplyFramesTest : public ::testing::Test {
 protected:
  ReplyFrames Frames(std::size_t bytes) {
    return ReplyFrames({.bytes = bytes, .send = [this](PlanVersion version, SharedBuffer rows) {
                          EXPECT_EQ(version, PlanVersion{5});
                          sent_.emplace_back(reinterpret_cast<const char*>(rows.data()),
                                             rows.size());
                        }});
  }
  static void Add(ReplyFrames& frames, std::vector<std::size_t> ends, std::uint32_t devices = 1,
                  std::size_t ids = 0) {
    for (const std::size_t end : ends) frames.AddChunk(end, devices, ids);
    frames.SetReply(PlanVersion{5}, Letters(ends.back()));
  }

  std::vector<std::string> sent_;
};

TEST_F(ReplyFramesTest, SendsCompleteChunksButNeverTheLast) {
  ReplyFrames frames = Frames(2);
  Add(frames, {2, 4, 6});
  frames.Complete(0, 0);
  EXPECT_THAT(sent_, ElementsAre("ab"));
  frames.Complete(1, 0);
  frames.Complete(2, 0);
  EXPECT_THAT(sent_, ElementsAre("ab", "cd"));
  EXPECT_EQ(frames.sent_bytes(), 4u);
}

TEST_F(ReplyFramesTest, AChunkIsCompleteWhenAllDevicesHaveDoneTheirShare) {
  ReplyFrames frames = Frames(2);
  Add(frames, {2, 4}, /*devices=*/2);
  frames.Complete(0, 0);
  EXPECT_THAT(sent_, IsEmpty());
  frames.Complete(0, 0);
  EXPECT_THAT(sent_, ElementsAre("ab"));
}

TEST_F(ReplyFramesTest, ChunksAreSentInOrder) {
  ReplyFrames frames = Frames(2);
  Add(frames, {2, 4, 6, 8});
  frames.Complete(1, 0);
  frames.Complete(2, 0);
  EXPECT_THAT(sent_, IsEmpty());
  frames.Complete(0, 0);
  EXPECT_THAT(sent_, ElementsAre("abcdef"));
}

TEST_F(ReplyFramesTest, SmallChunksWaitForEachOther) {
  ReplyFrames frames = Frames(8);
  Add(frames, {1, 3, 4, 9, 10});
  for (std::size_t chunk = 0; chunk < 5; ++chunk) frames.Complete(chunk, 0);
  EXPECT_THAT(sent_, ElementsAre("abcd", "efghi"));
}

TEST_F(ReplyFramesTest, NothingGoesPastAChunkWithAMissingId) {
  ReplyFrames frames = Frames(2);
  Add(frames, {2, 4, 6, 8}, /*devices=*/1, /*ids=*/3);
  frames.Complete(0, 3);
  frames.Complete(1, 2);
  frames.Complete(2, 3);
  EXPECT_THAT(sent_, ElementsAre("ab"));
  EXPECT_EQ(frames.sent_bytes(), 2u);
}

TEST_F(ReplyFramesTest, DisabledSendsNothing) {
  ReplyFrames frames = Frames(2);
  frames.Disable();
  frames.Complete(0, 0);
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(ReplyFramesTest, DevicesOnManyThreadsSendEverythingOnceAndInOrder) {
  constexpr std::size_t kChunks = 500;
  std::string sent;  // Calls come one after the other.
  ReplyFrames frames({.bytes = 1, .send = [&](PlanVersion, SharedBuffer rows) {
                        sent.append(reinterpret_cast<const char*>(rows.data()), rows.size());
                      }});
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk) frames.AddChunk(chunk + 1, 3, 0);
  const SharedBuffer reply = Letters(kChunks);
  frames.SetReply(PlanVersion{5}, reply);
  std::vector<std::thread> devices;
  for (int device = 0; device < 3; ++device) {
    devices.emplace_back([&] {
      for (std::size_t chunk = 0; chunk < kChunks; ++chunk) frames.Complete(chunk, 0);
    });
  }
  for (std::thread& device : devices) device.join();
  EXPECT_EQ(frames.sent_bytes(), kChunks - 1);
  EXPECT_EQ(sent, std::string(reinterpret_cast<const char*>(reply.data()), kChunks - 1));
}

}  // namespace
}  // namespace embla
