// A call that runs while Python does something else, and the arrays it reads and writes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "absl/time/time.h"
#include "client/python/native/completion.h"
#include "client/python/native/errors.h"
#include "client/python/native/fork_guard.h"

namespace embla::python {

// References to arrays. Requires the GIL to be copied or destroyed.
using KeptArrays = std::vector<nanobind::ndarray<>>;

// Arrays that calls without a waiter still use. They are released by a thread that has the GIL:
// each Sweep frees those of the calls that are over.
class ParkedArrays {
 public:
  // Arrays of calls that are still going on are leaked: something may still write there.
  ~ParkedArrays();

  void Park(std::shared_ptr<Completion> completion, KeptArrays arrays);
  void Sweep();

  // From now on dropped tickets park their arrays instead of waiting, since the close of the client
  // was interrupted.
  void StopWaiting() { waits_ = false; }
  bool waits() const { return waits_; }

 private:
  struct Entry {
    std::shared_ptr<Completion> completion;
    KeptArrays arrays;
  };
  std::vector<Entry> entries_;
  bool waits_ = true;
};

// Thread safety: as Python objects are, by the GIL.
class Ticket {
 public:
  // `completion`: the call's end. `kept`: the arrays. `result`: what Wait returns. `parked` gets
  // the arrays of a ticket that is dropped after Cancel or after an interrupted Wait.
  Ticket(CallKind kind, std::shared_ptr<Completion> completion, KeptArrays kept,
         nanobind::object result, std::shared_ptr<ParkedArrays> parked);
  // Waits, with the GIL released, for a call that was never awaited: it writes into the arrays.
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // The call's result, again each time; its error as exception. DeadlineExceeded: not yet; the call
  // goes on. Releases the arrays.
  nanobind::object Wait(std::optional<double> timeout_seconds);
  bool done() const { return cancelled_ || completion_->done(); }
  // Gives the result of a call that only reads up, unless it is there; Wait fails at once then.
  // False: the call is over, or writes and cannot be taken back.
  bool Cancel();
  bool cancelled() const { return cancelled_; }
  int ReadableDescriptor();
  // Set when the call is over, whatever becomes of the ticket.
  const std::shared_ptr<Completion>& completion() const { return completion_; }

 private:
  const CallKind kind_;
  const ForkGuard fork_guard_;
  const std::shared_ptr<Completion> completion_;
  KeptArrays kept_;
  nanobind::object result_;
  const std::shared_ptr<ParkedArrays> parked_;
  bool cancelled_ = false;
  bool interrupted_ = false;  // A signal handler raised in Wait: nobody wants to wait any more.
};

}  // namespace embla::python
