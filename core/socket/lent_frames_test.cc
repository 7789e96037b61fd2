// Memory of frames that FrameSocket lends to the kernel: how long it is kept, and what a peer reads
// that comes to it late.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/failpoint.h"
#include "core/base/testing/await.h"
#include "core/socket/testing/frame_ends.h"
#include "core/wire/seal.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::BytesOf;
using ::embla::testing::ConnectedPair;
using ::embla::testing::End;
using ::embla::testing::FrameSocketTest;
using ::embla::testing::StatusIs;

constexpr int kArray = 6;
constexpr std::size_t kBytes = 256 << 10;

// Memory in pages of its own, which unmaps itself.
class Pages {
 public:
  explicit Pages(std::size_t size, char content) : size_(size) {
    data_ = static_cast<char*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
    Fill(content);
  }
  ~Pages() { Unmap(); }
  void Fill(char content) { std::memset(data_, content, size_); }
  void Unmap() {
    if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), size_);
  }
  char* data() { return data_; }
  std::size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  const std::size_t size_;
};

class LentFramesTest : public FrameSocketTest {
 protected:
  LentFramesTest() : LentFramesTest(ConnectedPair()) {}
  ~LentFramesTest() override { ClearFailpoints(); }

  // Owns memory of `content`; `freed_` counts.
  wire::Frame OwnedFrame(std::size_t bytes, char content) {
    struct Owned {
      std::string memory;
      std::atomic<int>* freed;
    };
    auto* const owned = new Owned{std::string(bytes, content), &freed_};
    wire::SplitMessage message;
    message.envelope = "owned";
    message.fields.emplace_back(kArray, grpc::Slice(
                                            owned->memory.data(), bytes,
                                            [](void* data) {
                                              auto* const freed = static_cast<Owned*>(data);
                                              ++*freed->freed;
                                              delete freed;
                                            },
                                            owned));
    return wire::MakeFrame(message);
  }
  static wire::Frame BorrowingFrame(Pages& pages, std::shared_ptr<wire::Seal> seal) {
    wire::SplitMessage message;
    message.envelope = "borrowed";
    message.borrows = true;
    message.fields.emplace_back(kArray,
                                grpc::Slice(pages.data(), pages.size(), grpc::Slice::STATIC_SLICE));
    return wire::MakeFrame(message, std::move(seal));
  }

  FrameSocket& socket() { return end_->socket(); }
  std::string Read(std::size_t bytes) {
    std::string read(bytes, '\0');
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t count = ::recv(peer_.number(), read.data() + done, bytes - done, 0);
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    read.resize(done);
    return read;
  }
  void AwaitFreed(int frames) {
    EXPECT_TRUE(AwaitFor([&] { return freed_ == frames; }, absl::Seconds(60), "memory is freed"));
  }
  static std::uint64_t SealIn(const std::string& frame) {
    std::uint64_t seal = 0;
    std::memcpy(&seal, frame.data() + frame.size() - sizeof(seal), sizeof(seal));
    return seal;
  }

  std::atomic<int> freed_ = 0;
  FileDescriptor peer_;
  std::unique_ptr<End> end_;

 private:
  explicit LentFramesTest(std::array<FileDescriptor, 2> pair)
      : peer_(std::move(pair[1])),
        end_(std::make_unique<End>(std::make_unique<Link>(std::move(pair[0])), *poller_)) {
    const int flags = ::fcntl(peer_.number(), F_GETFL);
    ::fcntl(peer_.number(), F_SETFL, flags & ~O_NONBLOCK);
  }
};

TEST_F(LentFramesTest, MemoryIsKeptUntilItIsRead) {
  const wire::Frame like = OwnedFrame(kBytes, 'a');
  socket().Send(OwnedFrame(kBytes, 'a'));
  ASSERT_TRUE(end_->AwaitSent(1));
  socket().Send(OwnedFrame(kBytes, 'b'));
  ASSERT_TRUE(end_->AwaitSent(2));
  AwaitTurns();
  EXPECT_EQ(freed_, 0) << "nothing is read";
  EXPECT_EQ(Read(like.bytes()), BytesOf(like));
  // The kernel counts more for the second than its bytes.
  EXPECT_EQ(Read(kBytes / 2).back(), 'b');
  AwaitFreed(1);
  EXPECT_EQ(Read(like.bytes() - kBytes / 2).back(), 'b');
  AwaitFreed(2);
}

TEST_F(LentFramesTest, MemoryOfAConnectionThatIsOverIsKeptUntilItIsRead) {
  const wire::Frame like = OwnedFrame(kBytes, 'a');
  socket().Send(OwnedFrame(kBytes, 'a'));
  ASSERT_TRUE(end_->AwaitSent(1));
  socket().Shutdown();
  ASSERT_TRUE(end_->AwaitClosed());
  end_.reset();
  EXPECT_EQ(freed_, 0);
  EXPECT_EQ(Read(like.bytes() + 1), BytesOf(like)) << "and then the end";
  AwaitFreed(1);
}

// The rest of a frame is never sent, and what was sent of it is as good as before.
TEST_F(LentFramesTest, MemoryOfAFrameThatIsCutOffIsKeptUntilItIsRead) {
  const wire::Frame like = OwnedFrame(64 << 20, 'a');
  socket().Send(OwnedFrame(64 << 20, 'a'));
  socket().Shutdown();
  ASSERT_TRUE(end_->AwaitClosed());
  end_.reset();
  AwaitTurns();
  EXPECT_EQ(freed_, 0);
  const std::string read = Read(like.bytes());
  EXPECT_LT(read.size(), like.bytes());
  EXPECT_EQ(read, BytesOf(like).substr(0, read.size()));
  AwaitFreed(1);
}

TEST_F(LentFramesTest, MemoryIsFreedWhenThePeerCloses) {
  for (int i = 0; i < 3; ++i) socket().Send(OwnedFrame(kBytes, 'a'));
  peer_.Close();
  ASSERT_TRUE(end_->AwaitClosed());
  end_.reset();
  AwaitFreed(3);
}

TEST_F(LentFramesTest, ShortFramesAreCopied) {
  socket().Send(OwnedFrame(1000, 'a'));
  ASSERT_TRUE(end_->AwaitSent(1));
  EXPECT_EQ(freed_, 1);
}

TEST_F(LentFramesTest, BorrowedMemoryIsReadUntilSendReturnsUnlessThereIsASeal) {
  Pages pages(kBytes, 'a');
  const wire::Frame frame = BorrowingFrame(pages, nullptr);
  const std::string bytes = BytesOf(frame);
  socket().Send(frame);
  pages.Fill('x');
  EXPECT_EQ(Read(bytes.size()), bytes);
}

TEST_F(LentFramesTest, ASealThatIsWholeBehindTheRestSaysThatAllIsAsItWasSent) {
  Pages pages(kBytes, 'a');
  const std::shared_ptr<wire::Seal> seal = wire::Seal::Make();
  const wire::Frame frame = BorrowingFrame(pages, seal);
  const std::string bytes = BytesOf(frame);
  socket().Send(frame);
  const std::string read = Read(bytes.size());
  seal->Break();
  pages.Fill('x');
  EXPECT_EQ(read, bytes);
  EXPECT_EQ(SealIn(read), wire::Seal::kWhole);
}

TEST_F(LentFramesTest, AReaderThatComesLateFindsTheSealBroken) {
  Pages pages(kBytes, 'a');
  const std::shared_ptr<wire::Seal> seal = wire::Seal::Make();
  const wire::Frame frame = BorrowingFrame(pages, seal);
  socket().Send(frame);
  ASSERT_TRUE(end_->AwaitSent(1));
  seal->Break();
  pages.Fill('x');
  const std::string read = Read(frame.bytes());
  EXPECT_NE(SealIn(read), wire::Seal::kWhole);
  EXPECT_EQ(read[frame.bytes() - sizeof(std::uint64_t) - 1], 'x') << "it was not lent at all";
}

// The frame waits for the kernel with half of its memory, which its sender takes back and unmaps.
TEST_F(LentFramesTest, AFrameThatIsTakenBackHalfSentHoldsUpNobody) {
  Pages pages(64 << 20, 'a');
  const std::shared_ptr<wire::Seal> seal = wire::Seal::Make();
  const wire::Frame frame = BorrowingFrame(pages, seal);
  const std::size_t bytes = frame.bytes();
  socket().Send(frame);
  const wire::Frame next = OwnedFrame(kBytes, 'n');
  socket().Send(OwnedFrame(kBytes, 'n'));
  seal->Break();
  pages.Unmap();
  const std::string read = Read(bytes);
  EXPECT_EQ(read.size(), bytes);
  EXPECT_NE(SealIn(read), wire::Seal::kWhole);
  EXPECT_EQ(Read(next.bytes()), BytesOf(next));
  EXPECT_FALSE(end_->is_closed());
}

TEST_F(LentFramesTest, WhatTheKernelDoesNotTakeIsCopied) {
  SetFailpoint("link.lend", FailpointAction::kError);
  Pages pages(kBytes, 'a');
  const wire::Frame frame = BorrowingFrame(pages, wire::Seal::Make());
  const std::string bytes = BytesOf(frame);
  socket().Send(frame);
  pages.Fill('x');
  EXPECT_EQ(Read(bytes.size()), bytes);
  EXPECT_FALSE(socket().Lends(kBytes)) << "the kernel is asked once";
  socket().Send(OwnedFrame(kBytes, 'b'));
  ASSERT_TRUE(end_->AwaitSent(2));
  EXPECT_EQ(Read(kBytes).size(), kBytes);
}

TEST_F(LentFramesTest, MemoryThatIsLentInPartIsKeptUntilThatIsRead) {
  SetFailpoint("link.lend", FailpointAction::kError, 2);
  const wire::Frame like = OwnedFrame(4 << 20, 'a');
  socket().Send(OwnedFrame(4 << 20, 'a'));
  std::string read = Read(64 << 10);
  EXPECT_EQ(freed_, 0);
  read += Read(like.bytes() - read.size());
  EXPECT_EQ(read, BytesOf(like));
  EXPECT_FALSE(socket().Lends(kBytes));
  AwaitFreed(1);
}

// A copy of its seal would say nothing of the memory that is lent.
TEST_F(LentFramesTest, ASealedFrameThatCannotBeLentToItsEndEndsTheConnection) {
  SetFailpoint("link.lend", FailpointAction::kError, 2);
  Pages pages(64 << 20, 'a');
  const wire::Frame frame = BorrowingFrame(pages, wire::Seal::Make());
  socket().Send(frame);
  EXPECT_LT(Read(frame.bytes()).size(), frame.bytes());
  ASSERT_TRUE(end_->AwaitClosed());
  EXPECT_THAT(end_->told().why, StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace embla
