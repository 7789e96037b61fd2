// Runs tests that were linked together (cmake/embla_library.cmake, embla_linked_test): by the name
// of a source, without .cc, the tests of that source; by any other name all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <set>
#include <string>

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  testing::InitGoogleMock(&argc, argv);
  std::set<std::string> own, others;
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (int i = 0; i < unit.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *unit.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      const std::string full_name = std::string(suite.name()) + "." + test.name();
      const std::filesystem::path source = test.file();
      if (source.extension() != ".cc") {
        std::cerr << source << " has tests: in CMakeLists.txt, those that include it are ALONE\n";
        return 1;
      }
      if (!(source.stem() == name ? own : others).insert(full_name).second ||
          (own.contains(full_name) && others.contains(full_name))) {
        std::cerr << full_name << " is the name of two tests\n";
        return 1;
      }
    }
  }
  if (!own.empty()) {
    // GoogleTest leaves out what its filter names after the first '-'.
    std::string filter = GTEST_FLAG_GET(filter);
    if (filter.find('-') == std::string::npos) filter += '-';
    for (const std::string& other : others) filter += ":" + other;
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
