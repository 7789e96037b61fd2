#include "server/rpc/http2_parts.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>

#include "server/rpc/http2_fixture.h"

namespace embla {
namespace {

constexpr char kPath[] = "/embla.v1.DataService/Lookup";

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class Http2PartsTest : public ::testing::Test {
 protected:
  Http2PartsTest() { Receive(http2::Hello()); }

  void Receive(const std::string& text) { parts_.OnReceived(Bytes(text)); }
  void Send(const std::string& text) { parts_.OnSent(Bytes(text)); }
  // The start of a message of `stated` bytes, of which `sent` come.
  static std::string Begun(std::uint32_t stream, std::uint32_t stated, std::size_t sent) {
    return http2::Headers(stream, kPath) +
           http2::Frame(
               http2::kData, 0, stream,
               std::string(1, '\0') + http2::BigEndian(stated, 4) + std::string(sent, '\1'));
  }
  static std::string More(std::uint32_t stream, std::size_t bytes) {
    return http2::Frame(http2::kData, 0, stream, std::string(bytes, '\1'));
  }

  Http2Parts parts_;
};

using Http2PartsCount = Http2PartsTest;

TEST_F(Http2PartsCount, MessagesThatAreCompleteHoldNothing) {
  for (std::uint32_t stream = 1; stream < 2001; stream += 2) {
    Receive(http2::Headers(stream, kPath) + http2::Message(stream, std::string(1000, '\1')));
  }
  EXPECT_EQ(parts_.bytes(), 0u);
}

TEST_F(Http2PartsCount, PartsOfAllStreamsAddUp) {
  for (std::uint32_t stream = 1; stream < 11; stream += 2) Receive(Begun(stream, 1 << 20, 10'000));
  EXPECT_GE(parts_.bytes(), 50'000u);
  EXPECT_LE(parts_.bytes(), 51'000u);
}

TEST_F(Http2PartsCount, MessageHoldsNothingOnceItIsComplete) {
  Receive(Begun(1, 20'000, 10'000));
  EXPECT_GE(parts_.bytes(), 10'000u);
  Receive(More(1, 10'000));
  EXPECT_EQ(parts_.bytes(), 0u);
}

TEST_F(Http2PartsCount, AnyCutOfTheBytesIsTheSame) {
  const std::string text =
      Begun(1, 300, 100) + Begun(3, 50, 50) + More(1, 200) + Begun(5, 9, 0) + More(5, 3);
  for (const char byte : text) Receive(std::string(1, byte));
  EXPECT_GE(parts_.bytes(), 8u * 64);  // A record for each of 5 + 3 bytes.
  Receive(More(5, 6));
  EXPECT_EQ(parts_.bytes(), 0u);
}

TEST_F(Http2PartsCount, SmallPieceHoldsTheBufferThatItCameIn) {
  Receive(Begun(1, 1 << 20, 0));
  for (int i = 0; i < 100; ++i) {
    Receive(http2::Frame(http2::FrameType{0xbb}, 0, 0, std::string(10'000, '\2')) + More(1, 1));
  }
  EXPECT_GE(parts_.bytes(), 1'000'000u);
  EXPECT_LE(parts_.bytes(), 1'010'000u);
}

TEST_F(Http2PartsCount, PieceHoldsOneBufferAtMost) {
  Receive(Begun(1, 1 << 20, 0));
  const std::size_t before = parts_.bytes();
  for (std::uint32_t stream = 3; stream < 2003; stream += 2) {
    Receive(http2::Headers(stream, kPath) + http2::Message(stream, std::string(1000, '\1')));
  }
  Receive(More(1, 1));
  EXPECT_EQ(parts_.bytes() - before, std::size_t{64} << 10);
}

using Http2PartsEnd = Http2PartsTest;

TEST_F(Http2PartsEnd, ResetByTheClientGivesBack) {
  Receive(Begun(1, 1 << 20, 10'000) + http2::Reset(1));
  EXPECT_EQ(parts_.bytes(), 0u);
}

TEST_F(Http2PartsEnd, ResetAndEndByTheServerGiveBack) {
  Receive(Begun(1, 1 << 20, 10'000) + Begun(3, 1 << 20, 10'000));
  Send(http2::Frame(http2::kSettings, 0, 0, "") + http2::Reset(1));
  Send(http2::Frame(http2::kHeaders, 5, 3, "\x88"));  // Trailers.
  EXPECT_EQ(parts_.bytes(), 0u);
}

TEST_F(Http2PartsEnd, WhatComesForAStreamThatIsOverIsNotHeld) {
  Receive(Begun(1, 1 << 20, 10'000));
  Send(http2::Reset(1));
  Receive(More(1, 10'000) + More(7, 10'000));
  EXPECT_EQ(parts_.bytes(), 0u);
}

}  // namespace
}  // namespace embla
