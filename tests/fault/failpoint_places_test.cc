// The table of failpoints and the sources name the same ones.
#include "tests/fault/failpoint_places.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::fault::failpoint_places_test {
namespace {

using ::embla::testing::IsOk;
using ::testing::ContainerEq;
using ::testing::Not;
using ::testing::StrEq;

TEST(FailpointPlaces, AreThoseOfTheSources) {
  const auto in_sources = FailpointsInSources(EMBLA_SOURCE_DIR);
  ASSERT_THAT(in_sources, IsOk());
  std::set<std::string> in_table;
  for (const FailpointPlace& place : FailpointPlaces()) in_table.insert(place.name);
  EXPECT_THAT(in_table, ContainerEq(*in_sources));
}

TEST(FailpointPlaces, ThatTheWalkDoesNotMeetHaveAReason) {
  std::set<std::string> seen;
  for (const FailpointPlace& place : FailpointPlaces()) {
    SCOPED_TRACE(place.name);
    const bool is_coordinators = place.program == Program::kCoordinator;
    EXPECT_TRUE(seen.insert(absl::StrCat(is_coordinators ? "c " : "s ", place.name)).second);
    if (place.driver == Driver::kNothing) {
      EXPECT_THAT(place.reason, Not(StrEq("")));
    } else {
      EXPECT_THAT(place.reason, StrEq(""));
    }
  }
}

}  // namespace
}  // namespace embla::fault::failpoint_places_test
