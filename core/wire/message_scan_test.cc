#include "core/wire/message_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/testing/status_matchers.h"
#include "embla/v1/inspect.pb.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

absl::Status Scan(const std::string& bytes, const ScanLimits& limits = {}) {
  return ScanMessage(bytes, *v1::SweepTableRequest::descriptor(), limits);
}
v1::SweepTableRequest Sweep(int ranges) {
  v1::SweepTableRequest request;
  request.set_table_id(7);
  for (int i = 0; i < ranges; ++i) {
    request.add_rows()->set_begin(3);
    request.mutable_rows(i)->set_end(5);
  }
  return request;
}

TEST(ScanMessage, WhatProtobufWritesIsTaken) {
  EXPECT_THAT(Scan(""), IsOk());
  EXPECT_THAT(Scan(Sweep(100).SerializeAsString()), IsOk());
}

TEST(ScanMessage, FieldsOfSubmessagesCount) {
  const std::string bytes = Sweep(10).SerializeAsString();  // 1 + 10 * 3
  EXPECT_THAT(Scan(bytes, {.fields_max = 31}), IsOk());
  EXPECT_THAT(std::string(Scan(bytes, {.fields_max = 30}).message()), HasSubstr("30 fields"));
}

TEST(ScanMessage, EmptySubmessagesAndUnknownFieldsCount) {
  std::string unknown;
  for (int i = 0; i < 11; ++i) unknown += std::string("\xf8\x07\x01", 3);  // Field 127.
  EXPECT_THAT(Scan(unknown, {.fields_max = 10}), StatusIs(absl::StatusCode::kInvalidArgument));
  v1::SweepTableRequest request;
  for (int i = 0; i < 11; ++i) request.add_rows();
  EXPECT_THAT(Scan(request.SerializeAsString(), {.fields_max = 10}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ScanMessage, LongMessagesAreRefused) {
  EXPECT_THAT(std::string(Scan(std::string(11, '\0'), {.bytes_max = 10}).message()),
              HasSubstr("11 bytes, at most 10"));
}

TEST(ScanMessage, EveryCutMessageIsRefusedOrShorter) {
  const std::string bytes = Sweep(3).SerializeAsString();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    v1::SweepTableRequest parsed;
    EXPECT_EQ(Scan(cut).ok(), parsed.ParseFromString(cut)) << size;
  }
}

TEST(ScanMessage, GroupsAreRefused) {
  std::string groups(1000, '\x0b');  // The start of a group, field 1.
  EXPECT_THAT(std::string(Scan(groups).message()), HasSubstr("unknown wire type"));
}

}  // namespace
}  // namespace embla::wire
