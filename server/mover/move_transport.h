// The network as a mover needs it: a way to the other end of a move, and one to the coordinator.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "server/migration/move_messages.h"
#include "server/migration/move_orders.h"

namespace embla {

// From one end of a move to the other: MoveMessage in proto/embla/v1/data.proto.
struct PeerMessage {
  UnitId unit = {};
  NodeId from{};
  std::variant<Pull, Chunk, FinalCut, Holds, Release, Covered> body = {};
  Buffer rows = {};        // Rows of a chunk, from UnitHost::ReadChunk.
  bool is_urgent = false;  // A chunk: writers of the unit wait for it.
};

inline MoveId MoveOf(const PeerMessage& message) {
  return std::visit([](const auto& body) { return body.move; }, message.body);
}

// Thread safety: every method may be called from any thread.
class MoveTransport {
 public:
  using Done = std::function<void(const absl::Status&)>;
  virtual ~MoveTransport() = default;

  // Sends to the node that listens on `address` (host:port) and returns. `done` runs once, on any
  // thread, perhaps within this call; OK: the other end has taken the message in. Anything else
  // says nothing: it may have arrived.
  virtual void Send(const std::string& address, PeerMessage message, Done done) = 0;
};

// Thread safety: every method may be called from any thread.
class MoveControl {
 public:
  virtual ~MoveControl() = default;

  // Tells the coordinator, if there is a way to it now, and returns. A report may be lost: whatever
  // matters is repeated.
  virtual void Report(std::vector<UnitReport> reports) = 0;
};

}  // namespace embla
