#include "server/etcd/etcd_address.h"

#include <string>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EtcdAddressParse, ReadsMembersAndPrefix) {
  const auto address = ParseEtcdAddress("etcd://a,b:1234,[::1]:99,[::2]/teams/ads/");
  ASSERT_THAT(address, IsOk());
  EXPECT_THAT(address->members, ElementsAre("a:2379", "b:1234", "[::1]:99", "[::2]:2379"));
  EXPECT_EQ(address->prefix, "/teams/ads");
}

TEST(EtcdAddressParse, HasAPrefixOfItsOwn) {
  EXPECT_EQ(ParseEtcdAddress("etcd://a")->prefix, "/embla");
  EXPECT_EQ(ParseEtcdAddress("etcd://a/")->prefix, "/embla");
}

TEST(EtcdAddressParse, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"etcd://", "'' is not HOST"},       {"etcd://a,,b", "'' is not HOST"},
      {"etcd://a:0", "'0' is no port"},    {"etcd://a:b", "'b' is no port"},
      {"etcd://a:1:2", "is not HOST"},     {"etcd://a/x y", "the prefix has"},
      {"http://a", "does not begin with"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseEtcdAddress(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

}  // namespace
}  // namespace embla
