// How many streams (calls) a connection has had, as gRPC's channelz counts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace embla {

struct StreamCounts {
  std::int64_t started = 0;
  std::int64_t answered = 0;    // The server has ended them.
  std::int64_t unanswered = 0;  // Over, and the server had not ended them: reset, or cut off.

  // Streams that are not over, as far as gRPC has got.
  std::int64_t open() const { return started - answered - unanswered; }
};

// No value: the connection is gone.
std::optional<StreamCounts> CountStreams(std::int64_t channelz_socket);

// Finds the channelz numbers of connections. Numbers ascend, so each is looked at once.
// Thread safety: none.
class ChannelzNumbers {
 public:
  // Fills in the numbers of connections that were made since the last call; the keys of `wanted`
  // are gRPC's names of them, such as fd:12. Connections that are not found stay 0.
  void Find(std::unordered_map<std::string, std::int64_t>& wanted);

 private:
  std::int64_t seen_ = 0;
};

}  // namespace embla
