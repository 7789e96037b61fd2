// A directory of its own, removed at the end.
#pragma once

#include <string>

namespace embla::testing {

// In memory where that is possible: a killed process loses nothing there either, and every sync is
// free.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace embla::testing
