// Frames (core/wire/frame.h) over a socket.
//
// Received on the poller's thread, or on one that waits for what comes (receiving_wait.h), straight
// to where the owner wants the arrays. Sent on the thread that calls Send as far as the kernel
// takes the bytes at once, and what is left over on the poller's. What the poller's thread sends
// while it receives goes together, when there is nothing more to receive.
//
// Long frames are lent to the kernel where the link lends (link.h): they stay here, unchanged,
// until the peer has read them, also after the connection. One that borrows is lent if it has a
// seal (core/wire/seal.h), which its sender breaks before the memory changes.
//
// Failpoint: frame_socket.receive, before each receipt.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/socket/link.h"
#include "core/socket/poller.h"
#include "core/wire/frame.h"

namespace embla {

// Thread safety: every public method may be called from any thread.
class FrameSocket final : public Poller::Watched, public std::enable_shared_from_this<FrameSocket> {
 public:
  // BeginFrame and EndFrame run on the thread that receives; the connection ends if they return
  // an error.
  class Owner : public wire::FrameReader::Sink {
   public:
    // A frame that was sent is in the kernel's hands. On the thread that called Send, or on the
    // poller's.
    virtual void OnSent() = 0;
    // The connection is over, and frames that were not sent never will be. Runs once, and nothing
    // runs after it; the owner may be gone when it returns. `why` is not OK.
    virtual void OnClosed(const absl::Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  // `owner` lives until OnClosed has run, `poller` longer. Errors: Unavailable; then no function of
  // the owner runs.
  static absl::StatusOr<std::shared_ptr<FrameSocket>> Open(std::unique_ptr<Link> link, Owner& owner,
                                                           Poller& poller,
                                                           std::size_t text_bytes_max);
  ~FrameSocket() override;

  // Frames are sent in the order of the calls, once the link is ready. Memory that a frame borrows
  // is not read any more when Send returns: what the kernel does not take at once is copied. Nobody
  // changes the rest of it while the frame has it. The owner must not hold a lock that OnSent
  // takes.
  void Send(wire::Frame frame);
  // Whether a frame of so many bytes is lent, if it borrows nothing or has a seal.
  bool Lends(std::size_t bytes) const { return bytes >= kLentBytesMin && link_->lends(); }
  // Takes one more frame. At first, and after each frame, none is taken until this is called;
  // EndFrame may call it.
  void Want();
  // Has the calling thread receive in place of the poller's, until EndReceiving. False: it cannot.
  // Requires: every frame is wanted as soon as the one before has ended.
  bool BeginReceiving();
  // Receives what has come, once the descriptor has events. False: the connection is over, and the
  // poller's thread is told to see to that.
  bool ReceiveHere();
  void EndReceiving();
  int number() const { return link_->number(); }

  // Ends the connection. Frames that are not sent yet are dropped. OnClosed comes later.
  void Shutdown() { link_->Shutdown(); }

  void OnEvents(std::uint32_t events) override;

 private:
  // Shorter frames are copied by the kernel: a page costs it more to refer to than a part of one to
  // copy.
  static constexpr std::size_t kLentBytesMin = std::size_t{16} << 10;

  struct Outgoing {
    wire::Frame frame;
    std::size_t sent = 0;       // Bytes of it.
    bool is_lent = false;       // Goes by Link::Lend.
    bool is_kept = false;       // The kernel may refer to what is sent.
    bool is_forgotten = false;  // Its arrays are zeros.

    // Keeps a copy of what is not sent; of a frame with a broken seal zeros in place of its arrays,
    // whose memory may be gone. Returns the frame as it was.
    wire::Frame Own();
  };
  // A frame whose memory the kernel may refer to. Its head, which says of an array at least, is
  // longer than what a string keeps in itself: it moves with its memory.
  struct Lent {
    std::uint64_t end = 0;  // Bytes that had been sent when it was.
    wire::Frame frame;
  };

  FrameSocket(std::unique_ptr<Link> link, Owner& owner, Poller& poller, std::size_t text_bytes_max);

  // Whether the link is ready, or becomes so. Not OK: it never will.
  absl::StatusOr<bool> Prepare(std::uint32_t events);
  absl::Status ReceiveAndSend(std::uint32_t events);
  // Receives until there is no more, no more is wanted, or others should have their turn. Not OK:
  // the connection is over.
  absl::Status Receive();
  absl::Status TakeStaged();
  absl::Status ReceiveSome(bool& more);
  // Whether a frame is wanted; `begins`: it is taken. Otherwise nothing is received until one is.
  bool IsWanted(bool begins);

  // Queues a frame, unless it borrows and has to wait. Whether the caller is to call Flush.
  bool BeginSend(Outgoing& outgoing);
  bool MaySend() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the caller is to call Flush.
  bool BeginFlush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends what is queued. Requires: sending_ is set by the caller, for itself.
  void Flush();
  // Says how many frames are in the kernel's hands now.
  void SendSome(std::size_t& finished);
  void Close(const absl::Status& why);
  // Whether `outgoing` has a seal that was broken before all of it was sent.
  static bool IsTakenBack(const Outgoing& outgoing) {
    return outgoing.frame.seal != nullptr && !outgoing.frame.seal->is_whole() &&
           !outgoing.is_forgotten;
  }
  // Its memory is read no more.
  void Forget(Outgoing& first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first frame cannot be lent: it is copied by the kernel, or ends the connection.
  void CannotLend();
  // Takes what was not sent; what is lent of it stays.
  std::deque<Outgoing> TakeQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of what was lent and has been read; whether that is all.
  bool DropRead();
  // The same, and again after a while, until that is all.
  void LookForRead();
  void LookAfter(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::unique_ptr<Link> link_;  // Null in the destructor only.
  Owner& owner_;                // Not owned; outlives OnClosed.
  Poller& poller_;              // Not owned; outlives this object.

  // The receiving thread's.
  wire::FrameReader reader_;
  std::vector<std::byte> staging_;
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;

  Mutex mu_;
  bool is_ready_ ABSL_GUARDED_BY(mu_);  // The link.
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  bool paused_ ABSL_GUARDED_BY(mu_) = true;     // Until a frame is wanted.
  bool gathers_ ABSL_GUARDED_BY(mu_) = false;   // The poller's thread receives.
  bool is_lent_ ABSL_GUARDED_BY(mu_) = false;   // Another thread receives.
  absl::Status received_ ABSL_GUARDED_BY(mu_);  // Not OK: why nothing more can be received.
  bool blocked_ ABSL_GUARDED_BY(mu_) = false;   // Until the kernel takes more.
  bool sending_ ABSL_GUARDED_BY(mu_) = false;   // A thread is in Flush.
  bool removed_ ABSL_GUARDED_BY(mu_) = false;   // From the poller.
  bool told_ ABSL_GUARDED_BY(mu_) = false;      // OnClosed.
  absl::Status closed_ ABSL_GUARDED_BY(mu_);    // Not OK: why.
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mu_);
  std::uint64_t sent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Lent> lent_ ABSL_GUARDED_BY(mu_);          // The oldest first.
  absl::Duration next_look_ ABSL_GUARDED_BY(mu_) = {};  // 0: nobody looks again.
};

}  // namespace embla
