#include "server/app/port_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

TEST(WritePortFile, IsJson) {
  const std::string path = ::testing::TempDir() + "embla_port_file_test.json";
  ASSERT_THAT(WritePortFile(path, {{"listen", "127.0.0.1:7"}, {"metrics", ""}}), IsOk());
  const auto text = ReadFile(path);
  ASSERT_THAT(text, IsOk());
  const nlohmann::json json = nlohmann::json::parse(*text);
  EXPECT_EQ(json["listen"], "127.0.0.1:7");
  EXPECT_EQ(json["metrics"], "");
}

TEST(WritePortFile, SaysWhichFileItCannotWrite) {
  const absl::Status status = WritePortFile("/nonexistent/ports.json", {});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent")));
  EXPECT_NE(std::string(status.message()).find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace embla
