// Data calls that wait for their replies, by sequence number. Rows are placed where the request
// wants them, frame by frame.
//
// Thread safety: none; whoever owns it has a lock for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/data_request.h"
#include "core/wire/reply_codec.h"

namespace embla::client {

// A call that is over, to be told without the lock.
struct FinishedCall {
  NodeChannel::Done done;
  NodeReply reply;

  void Tell() { done(std::move(reply)); }
};

class PendingCalls {
 public:
  // `withheld`: the message of a request that was only asked for. `seal`: is broken when the call
  // is over; may be null.
  void Add(std::uint64_t sequence, DataRequest request, std::size_t sent_bytes,
           std::optional<wire::SplitMessage> withheld, std::shared_ptr<wire::Seal> seal);

  // Memory for the next `size` bytes of rows of a call, which is not expired before Receive has
  // seen the whole message. Null: nobody waits for them.
  std::byte* PlaceRows(std::uint64_t sequence, std::size_t size);
  // The message that may be sent now that its node has answered so.
  std::optional<wire::SplitMessage> TakeWithheld(const wire::StreamReply& reply, std::size_t bytes);
  // A message of `bytes` bytes has come, and its rows are placed. Returns the call that it ends.
  std::optional<FinishedCall> Receive(wire::StreamReply reply, std::size_t bytes);

  // Adds the calls whose time is over to `finished`; returns when the next one's is.
  absl::Time Expire(absl::Time now, std::vector<FinishedCall>& finished);
  std::vector<FinishedCall> FailAll(const absl::Status& status);

  bool empty() const { return calls_.empty(); }
  // When the time was over of the call that is kept for a message that is only partly there.
  absl::Time late_since() const { return late_since_; }

 private:
  struct Pending {
    DataRequest request;
    std::size_t sent_bytes = 0;
    std::size_t received_bytes = 0;
    std::size_t rows_bytes = 0;  // Received so far.
    bool too_many_rows = false;
    bool receiving = false;  // A message is being copied.
    std::optional<wire::SplitMessage> withheld;
    std::shared_ptr<wire::Seal> seal;
  };

  static FinishedCall Finish(Pending pending, absl::Status status);
  static absl::Status CheckRows(const Pending& pending);

  absl::flat_hash_map<std::uint64_t, Pending> calls_;
  absl::Time late_since_ = absl::InfiniteFuture();
};

}  // namespace embla::client
