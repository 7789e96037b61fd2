// A gate in front of a port of loopback, for tests that cut a network: bytes pass while it is open;
// while it is shut nothing does, and nobody is told.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/base/file_descriptor.h"

namespace embla::testing {

class TcpGate {
 public:
  // Passes connections on to `upstream`, such as 127.0.0.1:80.
  explicit TcpGate(const std::string& upstream);
  ~TcpGate();

  const std::string& address() const { return address_; }
  void Shut() { is_shut_ = true; }
  void Open() { is_shut_ = false; }

 private:
  struct Pair {
    FileDescriptor near;
    FileDescriptor far;
    bool is_over = false;
  };

  void Run();
  void Accept();

  const sockaddr_in upstream_;
  FileDescriptor listener_;
  std::string address_;
  std::vector<Pair> pairs_;  // The thread's.
  std::atomic<bool> is_shut_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace embla::testing
