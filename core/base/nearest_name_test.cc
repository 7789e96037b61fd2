#include "core/base/nearest_name.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace embla {
namespace {

const std::vector<std::string> kNouns = {"cluster", "job", "lookup", "node", "plan", "table"};

TEST(NearestName, FindsWhatWasMistyped) {
  EXPECT_EQ(NearestName("tabel", kNouns), "table");  // Swapped.
  EXPECT_EQ(NearestName("tables", kNouns), "table");
  EXPECT_EQ(NearestName("nod", kNouns), "node");
  EXPECT_EQ(NearestName("claster", kNouns), "cluster");
  EXPECT_EQ(NearestName("lst", std::vector<std::string>{"create", "ls"}), "ls");
}

TEST(NearestName, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(NearestName("restore", kNouns), "");
  EXPECT_EQ(NearestName("x", kNouns), "");
  EXPECT_EQ(NearestName("", kNouns), "");
  EXPECT_EQ(NearestName("table", {}), "");
}

}  // namespace
}  // namespace embla
