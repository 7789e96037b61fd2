#include "server/app/port_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/file.h"

namespace embla {
namespace {

TEST(WritePortFile, IsJson) {
  const std::string path = ::testing::TempDir() + "embla_port_file_test.json";
  ASSERT_TRUE(WritePortFile(path, {{"listen", "127.0.0.1:7"}, {"metrics", ""}}).ok());
  const auto text = ReadFile(path);
  ASSERT_TRUE(text.ok());
  const nlohmann::json json = nlohmann::json::parse(*text);
  EXPECT_EQ(json["listen"], "127.0.0.1:7");
  EXPECT_EQ(json["metrics"], "");
}

TEST(WritePortFile, SaysWhichFileItCannotWrite) {
  const absl::Status status = WritePortFile("/nonexistent/ports.json", {});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace embla
