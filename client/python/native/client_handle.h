// The C++ client as one Python object has it: refuses use after close and after fork, and keeps the
// arrays of calls that are not awaited any more.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/python/native/errors.h"
#include "client/python/native/fork_guard.h"
#include "client/python/native/ticket.h"
#include "embla/client.h"

namespace embla::python {

// Thread safety: by the GIL, which every method requires.
class ClientHandle {
 public:
  // Waits, interruptibly, until the coordinator has given a session.
  explicit ClientHandle(client::ConnectOptions options);
  ~ClientHandle();  // Waits for the calls in flight.
  ClientHandle(const ClientHandle&) = delete;
  ClientHandle& operator=(const ClientHandle&) = delete;

  // Returns the client; a caller that keeps it keeps the connections open. Raises ClientClosedError
  // or ForkedClientError.
  std::shared_ptr<client::Client> Use();

  // Runs a call that waits in C++, interruptibly. `arrays` are kept until it is over, even if it is
  // not awaited any more.
  absl::Status Run(std::function<absl::Status(client::Client&)> call, KeptArrays arrays = {});

  // The end of an update in flight, for Flush.
  void Track(const std::shared_ptr<Completion>& update);
  // Waits, interruptibly, for the updates in flight. Returns the error of the first that failed;
  // DeadlineExceeded where some go on after `timeout`.
  absl::Status Flush(absl::Duration timeout);

  // Later calls are refused; those in flight have until `timeout` is over. DeadlineExceeded: some
  // were ended then. A second call does nothing.
  absl::Status Close(absl::Duration timeout);
  bool closed() const { return client_ == nullptr; }

  const std::shared_ptr<ParkedArrays>& parked() const { return parked_; }

 private:
  const ForkGuard fork_guard_;
  std::shared_ptr<client::Client> client_;  // Null after Close.
  const std::shared_ptr<ParkedArrays> parked_ = std::make_shared<ParkedArrays>();
  std::vector<std::shared_ptr<Completion>> updates_;  // Some of them may be over.
};

}  // namespace embla::python
