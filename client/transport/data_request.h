// A data call on its way through the channel.
#pragma once

#include <cstddef>
#include <variant>

#include "absl/time/time.h"
#include "client/route/node_request.h"
#include "client/transport/node_channel.h"

namespace embla::client {

// Memory that an update borrows is good until Enter of the gate has returned, and Send of a
// connection; by a connection that has lent it to the kernel it is read until `done` begins.
struct DataRequest {
  std::variant<NodeLookup, NodeUpdate> call;
  absl::Time deadline;
  NodeChannel::Done done;

  bool is_lookup() const { return call.index() == 0; }
  bool is_contribution() const {
    return !is_lookup() && std::get<NodeUpdate>(call).batch.claim.has_value();
  }
  // Copies what is borrowed.
  void Own() {
    if (!is_lookup()) std::get<NodeUpdate>(call).Own();
  }
  // Memory for the answered rows; empty for updates.
  std::span<std::byte> reply_rows() const {
    return is_lookup() ? std::get<NodeLookup>(call).reply_rows : std::span<std::byte>();
  }
  // On their way to and from the node.
  std::size_t bytes() const {
    return reply_rows().size() +
           std::visit([](const auto& request) { return request.bytes(); }, call);
  }
};

// One connection to a node. `done` as in NodeChannel.
class DataConnection {
 public:
  virtual ~DataConnection() = default;
  // The result as of NodeChannel::Lookup.
  virtual SocketPtr Send(DataRequest request) = 0;
  // Fails what is in flight with Unavailable.
  virtual void Close() = 0;
};

}  // namespace embla::client
