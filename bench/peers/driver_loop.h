// The loop of a peer's driver in C++: verifies the peer, says READY, and then measures one case for
// each line of its input. bench/peers/peers.py has the other end of this protocol:
//
//   CASE OPERATION IN_FLIGHT SECONDS   ->   {"rows_per_second": 4.1e6, "p50_ms": 0.95}
//
// The loop ends with its input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/peers/requests.h"

namespace embla::peers {

enum class Operation { kLookup, kSgd, kRowwiseAdagrad };

// The memory of one request in flight.
struct Slot {
  DistinctRows distinct;
  std::vector<float> gradients;  // Input: one row per bag.
  std::vector<float> sums;       // One row per distinct row.
  std::vector<float> result;     // One row per bag, of a lookup.
  std::function<void()> done;    // To be called once when the request has ended; by any thread.
};

// A system that is measured. Thread safety: one thread calls.
class Peer {
 public:
  virtual ~Peer() = default;

  virtual std::vector<Operation> Operations() const = 0;

  // Begins one request. `slot` has to live, and is not touched by the caller, until its done().
  virtual void Begin(Operation operation, std::span<const std::uint64_t> rows, Slot& slot) = 0;

  // Works on what is in flight until one request has ended. False: requests end by themselves.
  virtual bool EndOne() { return false; }
};

// Serves the input until its end. Returns the exit code of the program.
int ServeCases(const Shape& shape, Peer& peer);

}  // namespace embla::peers
