// A file that is gone at the end of a test.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

#include <unistd.h>

namespace embla::train::testing {

class TempFile {
 public:
  explicit TempFile(std::string_view content) {
    static std::atomic<int> number = 0;
    path_ = std::filesystem::temp_directory_path() /
            absl::StrCat("embla_train_", ::getpid(), "_", ++number);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace embla::train::testing
