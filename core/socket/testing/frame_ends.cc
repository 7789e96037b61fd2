#include "core/socket/testing/frame_ends.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include <gmock/gmock.h>

#include "core/base/split_mix.h"
#include "core/base/testing/status_matchers.h"
#include "core/tls/testing/test_authority.h"

namespace embla::testing {
namespace {

std::string Content(std::uint64_t number, std::size_t size) {
  std::string bytes(size, '\0');
  const std::uint64_t seed = SplitMix64(number);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = SplitMix64(seed + i);
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return bytes;
}

std::string TextOf(std::uint64_t number) {
  std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
  return text + Content(number, SplitMix64(number) % (kTextBytesMax - sizeof(number)));
}

}  // namespace

std::vector<std::size_t> ArrayBytes(std::uint64_t number) {
  if ((number & kTextAlone) != 0) return {};
  if ((number & kMedium) != 0) return {64 << 10};
  std::uint64_t random = SplitMix64(number);
  if ((number & kLarge) != 0 || random % 16 == 0) return {3 << 20};
  std::vector<std::size_t> sizes(random / 16 % 4);
  for (std::size_t& size : sizes) {
    random = SplitMix64(random);
    size = 1 + (random >> 8) % (std::uint64_t{1} << random % 20);
  }
  return sizes;
}

std::string ArrayOf(std::uint64_t number, std::size_t array, std::size_t size) {
  return Content(SplitMix64(number) + array, size);
}

wire::SplitMessage MessageOf(std::uint64_t number) {
  wire::SplitMessage message{.envelope = TextOf(number), .small = {}, .fields = {}};
  const std::vector<std::size_t> sizes = ArrayBytes(number);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    message.fields.emplace_back(static_cast<int>(i + 1), grpc::Slice(ArrayOf(number, i, sizes[i])));
  }
  return message;
}

std::string BytesOf(const wire::Frame& frame) {
  std::string bytes = frame.head;
  for (const grpc::Slice& array : frame.pieces) {
    bytes.append(reinterpret_cast<const char*>(array.begin()), array.size());
  }
  return bytes;
}

bool AreInOrder(const std::vector<std::uint64_t>& numbers) {
  std::map<std::uint64_t, std::uint64_t> next;
  for (const std::uint64_t with_kind : numbers) {
    const std::uint64_t number = with_kind & ~(kTextAlone | kMedium | kLarge);
    std::uint64_t& least = next[number >> 32];
    if (number < least) return false;
    least = number + 1;
  }
  return true;
}

// Checks that what comes are frames of FrameOf. Some of their arrays are dropped.
class End::Owner final : public FrameSocket::Owner {
 public:
  explicit Owner(End& end) : end_(end) {}

  absl::Status BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                          std::span<std::byte*> places) override {
    end_.Note([](Told& told) { ++told.begun; });
    is_empty_ = text.empty();
    arrays_.clear();
    if (text.size() >= sizeof(number_)) std::memcpy(&number_, text.data(), sizeof(number_));
    const std::vector<std::size_t> sizes =
        is_empty_ ? std::vector<std::size_t>() : ArrayBytes(number_);
    const auto is_same = [](const wire::FrameArray& array, std::size_t size) {
      return array.bytes == size;
    };
    if ((!is_empty_ && text != TextOf(number_)) || !std::ranges::equal(arrays, sizes, is_same)) {
      ADD_FAILURE() << "a frame that nobody sent";
      return absl::InternalError("a frame that nobody sent");
    }
    arrays_.resize(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(arrays[i].number, i + 1);
      if ((number_ + i) % 5 == 4) continue;
      arrays_[i].resize(sizes[i]);
      places[i] = reinterpret_cast<std::byte*>(arrays_[i].data());
    }
    return end_.behaviour()->begin();
  }

  absl::Status EndFrame() override {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].empty()) continue;
      EXPECT_TRUE(arrays_[i] == ArrayOf(number_, i, arrays_[i].size())) << "array " << i;
    }
    end_.Note([this](Told& told) {
      ++told.ended;
      if (!is_empty_) told.numbers.push_back(number_);
    });
    if (end_.behaviour()->wants_more) end_.socket_->Want();
    return end_.behaviour()->end();
  }

  void OnSent() override {
    end_.Note([](Told& told) { ++told.sent; });
    end_.behaviour()->sent();
  }

  void OnClosed(const absl::Status& why) override {
    EXPECT_THAT(why, ::testing::Not(IsOk()));
    End& end = end_;
    if (end.behaviour()->dies) end.owner_.reset();
    end.Note([&why](Told& told) {
      ++told.closed;
      told.why = why;
    });
  }

 private:
  End& end_;  // Not owned; outlives this object.
  // The frame that comes now.
  bool is_empty_ = false;
  std::uint64_t number_ = 0;
  std::vector<std::string> arrays_;
};

End::End(std::unique_ptr<Link> link, Poller& poller) : owner_(std::make_unique<Owner>(*this)) {
  auto socket = FrameSocket::Open(std::move(link), *owner_, poller, kTextBytesMax);
  EXPECT_THAT(socket, IsOk());
  socket_ = *std::move(socket);
}

End::~End() {
  socket_->Shutdown();
  AwaitClosed();
}

void ExpectClosedOnce(End& end) {
  const Told told = end.told();
  EXPECT_EQ(told.closed, 1);
  EXPECT_EQ(told.after_closed, 0);
}

std::array<FileDescriptor, 2> ConnectedPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::array<std::unique_ptr<Link>, 2> LinkedPair(bool has_tls) {
  auto [a, b] = ConnectedPair();
  if (!has_tls) return {std::make_unique<Link>(std::move(a)), std::make_unique<Link>(std::move(b))};
  static const auto& authority = *new testing::TestAuthority();
  static const TlsContext client =
      ClientContext(authority.Load(Role::kTrainer, "t1")).value_or(nullptr);
  static const TlsContext server =
      ServerContext(authority.Load(Role::kNode, "n1")).value_or(nullptr);
  return {Link::ToServer(std::move(a), client, {.role = Role::kNode}),
          Link::FromClient(std::move(b), server)};
}

}  // namespace embla::testing
