#include "server/gpu/cuda_status.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::gpu {
namespace {

// The text of driver_types.h, which documents every error; empty where there is none.
std::string DriverTypes() {
  std::istringstream folders(EMBLA_CUDA_INCLUDE_DIRS);
  for (std::string folder; std::getline(folders, folder, ';');) {
    const std::ifstream file(folder + "/driver_types.h");
    std::ostringstream text;
    text << file.rdbuf();
    if (file) return text.str();
  }
  return "";
}

// The errors after which, by their comments, the process can do nothing more with CUDA.
std::map<std::string, int> DocumentedAsLasting(const std::string& header) {
  std::map<std::string, int> errors;
  for (std::size_t at = 0; (at = header.find("/**", at)) != std::string::npos;) {
    const std::size_t end = header.find("*/", at);
    std::istringstream words(header.substr(at, end - at));
    std::string comment;
    for (std::string word; words >> word;) comment += word == "*" ? "" : word + " ";
    std::istringstream behind(header.substr(end + 2, 200));
    std::string name, equals;
    int number = 0;
    if (behind >> name >> equals >> number && name.starts_with("cudaError") &&
        (comment.find("process must be terminated") != std::string::npos ||
         comment.find("in an inconsistent state") != std::string::npos)) {
      errors[name] = number;
    }
    at = end;
  }
  return errors;
}

TEST(StopsDevice, IsTrueOfEveryErrorThatTheRuntimeDocumentsAsLasting) {
  const std::string header = DriverTypes();
  if (header.empty()) GTEST_SKIP() << "no driver_types.h in " << EMBLA_CUDA_INCLUDE_DIRS;
  const auto errors = DocumentedAsLasting(header);
  EXPECT_GE(errors.size(), 10u);  // The runtime's comments are worded as expected.
  for (const auto& [name, number] : errors) EXPECT_TRUE(StopsDevice(number)) << name;
}

TEST(StopsDevice, IsFalseOfCallsThatWereRefused) {
  for (const int number : {1, 2, 3, 98, 101, 700 + 1}) EXPECT_FALSE(StopsDevice(number)) << number;
}

}  // namespace
}  // namespace embla::gpu
