// One open file descriptor, closed when its owner is destroyed.
#pragma once

#include <unistd.h>

#include <utility>

namespace embla {

class FileDescriptor {
 public:
  FileDescriptor() = default;  // No descriptor.
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() { Close(); }

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }
  // The caller closes it.
  int Release() { return std::exchange(number_, -1); }
  void Close() {
    if (is_open()) ::close(Release());
  }

 private:
  int number_ = -1;
};

}  // namespace embla
