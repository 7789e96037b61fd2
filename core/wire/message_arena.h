// Memory for the messages of one call, given back at once: a request has a message for each table,
// and to allocate these one by one costs as much as to fill them.
#pragma once

#include <array>
#include <cstddef>

#include <google/protobuf/arena.h>

namespace embla::wire {

// Thread safety: one thread's.
class MessageArena {
 public:
  // A message that lives as long as this object.
  template <typename Message>
  Message& Make() {
    return *google::protobuf::Arena::CreateMessage<Message>(&arena_);
  }

 private:
  static constexpr std::size_t kFirstBytes = 2048;  // Holds a request of some tables.
  static constexpr std::size_t kBlockBytesMax = std::size_t{64} << 10;

  google::protobuf::ArenaOptions Options() {
    google::protobuf::ArenaOptions options;
    options.initial_block = first_.data();
    options.initial_block_size = first_.size();
    options.max_block_size = kBlockBytesMax;
    return options;
  }

  alignas(std::max_align_t) std::array<char, kFirstBytes> first_;
  google::protobuf::Arena arena_{Options()};
};

}  // namespace embla::wire
