#include "core/tls/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

TEST(IdentityFromUri, ReadsWhatUriOfWrites) {
  for (const Role role : kAllRoles) {
    const Identity identity{.cluster = "prod-1.example", .role = role, .name = "N_0"};
    const absl::StatusOr<Identity> read = IdentityFrom(UriOf(identity));
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(*read, identity);
  }
}

TEST(IdentityFromUri, SaysWhichPartIsWrong) {
  struct Case {
    const char* uri;
    const char* why;
  };
  const Case cases[] = {
      {"", "it does not begin with spiffe://"},
      {"https://prod/node/n0", "it does not begin with spiffe://"},
      {"spiffe://prod", "it has no role"},
      {"spiffe://prod/node", "it has no name"},
      {"spiffe://prod/root/n0", "there is no role \"root\""},
      {"spiffe://prod/Node/n0", "there is no role"},
      {"spiffe://Prod/node/n0", "cluster name \"Prod\" is no trust domain"},
      {"spiffe:///node/n0", "cluster name \"\""},
      {"spiffe://prod/node/", "name \"\" is not"},
      {"spiffe://prod/node/n0/x", "name \"n0/x\" is not"},
      {"spiffe://prod/node/..", "name \"..\" is not"},
      {"spiffe://prod/node/a\n", "name \"a\\n\" is not"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(IdentityFrom(each.uri).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.why)))
        << each.uri;
  }
}

}  // namespace
}  // namespace embla
