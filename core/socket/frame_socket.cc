#include "core/socket/frame_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/buffer.h"
#include "core/base/failpoint.h"
#include "core/base/status_macros.h"
#include "core/wire/callback_queue.h"

namespace embla {
namespace {

constexpr std::size_t kStagingBytes = 64 << 10;
// Shorter pieces are copied from the staging buffer: a call of the kernel costs more.
constexpr std::size_t kPlacedBytesMin = 16 << 10;
constexpr int kReceivesMax = 32;          // Before other sockets have their turn.
constexpr std::size_t kPiecesMax = 1024;  // The kernel takes so many at once.
// Nobody waits longer for a reply. More, and the two ends of a connection with as many requests in
// flight would take turns in place of working at the same time.
constexpr std::size_t kGatheredFramesMax = 8;
// A unix socket takes so much before its sender has to wait, where net.core.wmem_max lets it: each
// wait wakes two threads.
constexpr int kSendBufferBytes = 1 << 20;
// Shorter pieces, on the average, are copied by the kernel.
constexpr std::size_t kLentPieceBytesMin = 4 << 10;
// How long memory that was lent stays, at most, after it was read, while nothing is sent or comes.
constexpr absl::Duration kLookFirst = absl::Milliseconds(100);
constexpr absl::Duration kLookMax = absl::Seconds(2);

// Keeps `frames` until the peer has read what `link` was sent, or has closed its end.
void KeepUntilRead(std::shared_ptr<Link> link, std::shared_ptr<std::vector<wire::Frame>> frames,
                   absl::Duration look) {
  if (link->unread() == 0) return;
  wire::RunLater(look, [link = std::move(link), frames = std::move(frames), look] {
    KeepUntilRead(link, frames, std::min(2 * look, kLookMax));
  });
}

absl::Status Broken(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<FrameSocket>> FrameSocket::Open(std::unique_ptr<Link> link,
                                                               Owner& owner, Poller& poller,
                                                               std::size_t text_bytes_max) {
  std::shared_ptr<FrameSocket> opened(
      new FrameSocket(std::move(link), owner, poller, text_bytes_max));
  const int number = opened->link_->number();
  ::setsockopt(number, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  EMBLA_RETURN_IF_ERROR(poller.Add(number, 0, opened));
  if (!opened->link_->is_ready()) poller.Wake(opened);
  return opened;
}

FrameSocket::FrameSocket(std::unique_ptr<Link> link, Owner& owner, Poller& poller,
                         std::size_t text_bytes_max)
    : link_(std::move(link)),
      owner_(owner),
      poller_(poller),
      reader_(owner, text_bytes_max),
      staging_(kStagingBytes),
      is_ready_(link_->is_ready()) {}

FrameSocket::~FrameSocket() {
  if (DropRead()) return;
  link_->Shutdown();
  auto frames = std::make_shared<std::vector<wire::Frame>>();
  MutexLock lock(mu_);
  for (Lent& lent : lent_) frames->push_back(std::move(lent.frame));
  KeepUntilRead(std::move(link_), std::move(frames), kLookFirst);
}

wire::Frame FrameSocket::Outgoing::Own() {
  wire::Frame rest;
  std::size_t skip = sent;
  const std::size_t head = std::min(skip, frame.head.size());
  rest.head = frame.head.substr(head);
  skip -= head;
  std::span<const grpc::Slice> copied = frame.pieces;
  if (frame.seal != nullptr) copied = copied.first(copied.size() - 1);
  std::size_t bytes = 0;
  for (const grpc::Slice& piece : copied) bytes += piece.size();
  Buffer pieces = Buffer::Allocate(bytes - std::min(skip, bytes));
  std::byte* end = pieces.data();
  for (const grpc::Slice& piece : copied) {
    const std::size_t skipped = std::min(skip, piece.size());
    const std::size_t left = piece.size() - skipped;
    skip -= skipped;
    is_forgotten ? std::memset(end, 0, left) : std::memcpy(end, piece.begin() + skipped, left);
    end += left;
  }
  if (!pieces.empty()) rest.pieces.push_back(wire::SliceOf(std::move(pieces)));
  if (frame.seal != nullptr) rest.pieces.push_back(frame.pieces.back());
  rest.seal = frame.seal;
  sent = skip;  // Bytes of the seal.
  return std::exchange(frame, std::move(rest));
}

void FrameSocket::Send(wire::Frame frame) {
  Outgoing outgoing{.frame = std::move(frame)};
  const std::size_t bytes = outgoing.frame.bytes();
  outgoing.is_lent = Lends(bytes) && bytes >= kLentPieceBytesMin * outgoing.frame.pieces.size() &&
                     (!outgoing.frame.borrows || outgoing.frame.seal != nullptr);
  outgoing.is_kept = outgoing.is_lent;
  if (outgoing.is_lent) outgoing.frame.borrows = false;  // Its memory need not be copied here.
  bool sends = BeginSend(outgoing);
  if (!sends && outgoing.frame.borrows) {
    outgoing.Own();  // It has to wait for others.
    sends = BeginSend(outgoing);
  }
  if (sends) Flush();
}

bool FrameSocket::BeginSend(Outgoing& outgoing) {
  MutexLock lock(mu_);
  if (!closed_.ok()) return false;
  const bool waits =
      gathers_ && queue_.size() + 1 < kGatheredFramesMax && poller_.IsCurrentThread();
  if (outgoing.frame.borrows && (waits || !queue_.empty() || !MaySend())) return false;
  queue_.push_back(std::move(outgoing));
  return !waits && BeginFlush();
}

bool FrameSocket::MaySend() const { return is_ready_ && !sending_ && !blocked_; }

bool FrameSocket::BeginFlush() {
  if (!MaySend() || queue_.empty()) return false;
  sending_ = true;
  return true;
}

void FrameSocket::Want() {
  {
    MutexLock lock(mu_);
    wanted_ = true;
    if (!paused_ || removed_) return;
    paused_ = false;
    Watch();
  }
  poller_.Wake(shared_from_this());  // Frames may have been received already.
}

void FrameSocket::Watch() {
  if (removed_ || !is_ready_) return;
  // While it is lent the other thread sees a peer that hangs up, in its time: once is enough here.
  const std::uint32_t receives = is_lent_ ? EPOLLONESHOT : paused_ ? 0u : EPOLLIN;
  poller_.Change(link_->number(), receives | (blocked_ ? EPOLLOUT : 0u), *this);
}

bool FrameSocket::BeginReceiving() {
  MutexLock lock(mu_);
  if (!is_ready_ || removed_ || gathers_ || is_lent_ || !received_.ok()) return false;
  // Bytes that have been received already have no event to wait for.
  if (staged_begin_ < staged_end_ || link_->HasReceived()) return false;
  is_lent_ = true;
  Watch();
  return true;
}

bool FrameSocket::ReceiveHere() {
  absl::Status status;
  do {
    status = Receive();
  } while (status.ok() && link_->HasReceived());
  if (status.ok()) return true;
  {
    MutexLock lock(mu_);
    received_ = status;
  }
  EndReceiving();
  return false;
}

void FrameSocket::EndReceiving() {
  bool is_over = false;
  {
    MutexLock lock(mu_);
    is_lent_ = false;
    Watch();
    is_over = !received_.ok();
  }
  if (is_over) poller_.Wake(shared_from_this());
}

void FrameSocket::OnEvents(std::uint32_t events) {
  const absl::StatusOr<bool> ready = Prepare(events);
  const absl::Status status = ready.ok() && *ready ? ReceiveAndSend(events) : ready.status();
  if (status.ok()) return;
  {
    MutexLock lock(mu_);
    if (removed_) return;
    removed_ = true;
  }
  Shutdown();
  poller_.Remove(link_->number(), *this);
  Close(status);
}

absl::StatusOr<bool> FrameSocket::Prepare(std::uint32_t events) {
  {
    MutexLock lock(mu_);
    if (is_ready_) return true;
  }
  EMBLA_ASSIGN_OR_RETURN(const std::uint32_t waits, link_->Prepare());
  if (waits != 0) {
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
      return absl::UnavailableError("the peer closed the connection");
    }
    poller_.Change(link_->number(), waits, *this);
    return false;
  }
  MutexLock lock(mu_);
  is_ready_ = true;
  Watch();
  return true;
}

absl::Status FrameSocket::ReceiveAndSend(std::uint32_t events) {
  bool receives = false;
  {
    MutexLock lock(mu_);
    if (removed_) return absl::OkStatus();  // Woken once more than it needed.
    if (!received_.ok()) return received_;
    gathers_ = !is_lent_;
    receives = gathers_;
    if ((events & EPOLLOUT) != 0) {
      blocked_ = false;
      Watch();
    }
  }
  absl::Status status = receives ? Receive() : absl::OkStatus();
  bool flush = false;
  {
    MutexLock lock(mu_);
    gathers_ = false;
    // Nobody hears replies any more.
    if (status.ok() && (events & (EPOLLHUP | EPOLLERR)) != 0 && paused_ && !is_lent_) {
      status = absl::UnavailableError("the peer closed the connection");
    }
    received_.Update(status);  // Once it is not OK, nobody else receives.
    flush = BeginFlush();
  }
  if (flush) Flush();
  return status;
}

absl::Status FrameSocket::Receive() {
  DropRead();
  bool more = true;
  for (int i = 0; i < kReceivesMax && more; ++i) {
    EMBLA_RETURN_IF_ERROR(TakeStaged());
    if (staged_begin_ < staged_end_) return absl::OkStatus();  // Nothing more is wanted.
    if (reader_.is_between_frames() && !IsWanted(false)) return absl::OkStatus();
    EMBLA_RETURN_IF_ERROR(ReceiveSome(more));
  }
  // It goes on when the others have had their turn.
  if (more && link_->HasReceived()) poller_.Wake(shared_from_this());
  return TakeStaged();
}

absl::Status FrameSocket::TakeStaged() {
  while (staged_begin_ < staged_end_) {
    if (reader_.is_between_frames() && !IsWanted(true)) return absl::OkStatus();
    const std::span<const std::byte> staged(staging_.data() + staged_begin_,
                                            staged_end_ - staged_begin_);
    EMBLA_ASSIGN_OR_RETURN(const std::size_t taken, reader_.Take(staged));
    staged_begin_ += taken;
  }
  return absl::OkStatus();
}

absl::Status FrameSocket::ReceiveSome(bool& more) {
  EMBLA_RETURN_IF_ERROR(Failpoint("frame_socket.receive"));
  const std::span<std::byte> place = reader_.Place();
  const bool placed = place.size() >= kPlacedBytesMin;
  std::array<iovec, 2> pieces = {iovec{.iov_base = place.data(), .iov_len = place.size()},
                                 iovec{.iov_base = staging_.data(), .iov_len = staging_.size()}};
  const ssize_t count = link_->Receive(std::span(pieces).last(placed ? 2 : 1));
  if (count == 0) return absl::UnavailableError("the peer closed the connection");
  if (count < 0) {
    more = errno == EINTR;
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    return Broken("cannot receive");
  }
  const auto received = static_cast<std::size_t>(count);
  const std::size_t in_place = placed ? std::min(received, place.size()) : 0;
  staged_begin_ = 0;
  staged_end_ = received - in_place;
  more = received >= (placed ? place.size() : staging_.size());
  return in_place == 0 ? absl::OkStatus() : reader_.Placed(in_place);
}

bool FrameSocket::IsWanted(bool begins) {
  MutexLock lock(mu_);
  if (wanted_) {
    wanted_ = !begins;
    return true;
  }
  if (!paused_) {
    paused_ = true;
    Watch();
  }
  return false;
}

void FrameSocket::Flush() {
  Outgoing* borrowing = nullptr;  // Its rest has to wait for the kernel.
  while (true) {
    std::size_t finished = 0;
    if (borrowing != nullptr) {
      borrowing->Own();
    } else {
      SendSome(finished);
    }
    for (std::size_t i = 0; i < finished; ++i) owner_.OnSent();
    borrowing = nullptr;
    bool tell = false;
    absl::Status why;
    std::deque<Outgoing> dropped;
    {
      MutexLock lock(mu_);
      if (closed_.ok() && !queue_.empty()) {
        // The poller's thread may have found that there is room, and left it to this one.
        if (!blocked_) continue;
        if (queue_.front().frame.borrows) {
          borrowing = &queue_.front();
          continue;
        }
      }
      sending_ = false;
      if (!closed_.ok()) dropped = TakeQueue();
      // The poller's thread left it to this one to tell.
      tell = !closed_.ok() && !told_;
      told_ = told_ || tell;
      why = closed_;
    }
    if (tell) owner_.OnClosed(why);
    return;
  }
}

void FrameSocket::SendSome(std::size_t& finished) {
  std::array<iovec, kPiecesMax> pieces;
  std::size_t count = 0;
  std::size_t bytes = 0;
  bool lends = false;
  {
    MutexLock lock(mu_);
    if (!closed_.ok() || queue_.empty()) return;
    if (IsTakenBack(queue_.front())) Forget(queue_.front());
    lends = queue_.front().is_lent;
    for (const Outgoing& outgoing : queue_) {
      if (outgoing.is_lent != lends || IsTakenBack(outgoing)) break;
      std::size_t skip = outgoing.sent;
      const auto add = [&](const void* data, std::size_t size) {
        const std::size_t skipped = std::min(skip, size);
        skip -= skipped;
        if (skipped == size || count == kPiecesMax) return;
        // The kernel only reads what it sends.
        pieces[count++] = {.iov_base = static_cast<char*>(const_cast<void*>(data)) + skipped,
                           .iov_len = size - skipped};
        bytes += size - skipped;
      };
      add(outgoing.frame.head.data(), outgoing.frame.head.size());
      for (const grpc::Slice& piece : outgoing.frame.pieces) add(piece.begin(), piece.size());
      if (count == kPiecesMax) break;
    }
  }
  const auto all_pieces = std::span(pieces).first(count);
  const ssize_t result = lends ? link_->Lend(all_pieces) : link_->Send(all_pieces);
  const int error = result < 0 ? errno : 0;
  if (error == EOPNOTSUPP && lends) return CannotLend();
  std::size_t sent = result < 0 ? 0 : static_cast<std::size_t>(result);
  const bool all = sent == bytes;
  std::vector<wire::Frame> done;  // Freed outside the lock.
  MutexLock lock(mu_);
  while (sent > 0) {
    Outgoing& first = queue_.front();
    const std::size_t now = std::min(first.frame.bytes() - first.sent, sent);
    sent -= now;
    first.sent += now;
    sent_bytes_ += now;
    if (first.sent < first.frame.bytes()) break;
    ++finished;
    if (first.is_kept) {
      lent_.push_back({sent_bytes_, std::move(first.frame)});
    } else {
      done.push_back(std::move(first.frame));
    }
    queue_.pop_front();
  }
  if (!lent_.empty() && next_look_ == absl::ZeroDuration()) LookAfter(kLookFirst);
  if (all || error == EINTR) return;
  blocked_ = true;
  if (error == 0 || error == EAGAIN) {
    Watch();
  } else {
    Shutdown();  // The poller's thread closes.
  }
}

void FrameSocket::Forget(Outgoing& first) {
  const std::size_t left = first.frame.bytes() - first.sent;
  first.is_forgotten = true;
  lent_.push_back({sent_bytes_ + left, first.Own()});
}

void FrameSocket::CannotLend() {
  MutexLock lock(mu_);
  Outgoing& first = queue_.front();
  first.is_lent = false;
  // A copy of the seal would not say what becomes of the memory before it.
  if (first.sent == 0 || first.frame.seal == nullptr) return;
  blocked_ = true;
  Shutdown();
}

bool FrameSocket::DropRead() {
  std::vector<wire::Frame> read;  // Freed outside the lock.
  MutexLock lock(mu_);
  if (lent_.empty()) return true;
  // At most the last bytes, as many as are unread by the kernel's count, have not been read.
  const std::size_t unread = link_->unread();
  while (!lent_.empty() && unread <= sent_bytes_ && lent_.front().end <= sent_bytes_ - unread) {
    read.push_back(std::move(lent_.front().frame));
    lent_.pop_front();
  }
  return lent_.empty();
}

void FrameSocket::LookForRead() {
  DropRead();
  MutexLock lock(mu_);
  if (!lent_.empty()) return LookAfter(std::min(2 * next_look_, kLookMax));
  next_look_ = absl::ZeroDuration();
}

void FrameSocket::LookAfter(absl::Duration wait) {
  next_look_ = wait;
  wire::RunLater(wait, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->LookForRead();
  });
}

std::deque<FrameSocket::Outgoing> FrameSocket::TakeQueue() {
  if (!queue_.empty() && queue_.front().is_kept && queue_.front().sent > 0) {
    lent_.push_back({sent_bytes_, std::move(queue_.front().frame)});
    queue_.pop_front();
  }
  return std::exchange(queue_, {});
}

void FrameSocket::Close(const absl::Status& why) {
  std::deque<Outgoing> dropped;
  {
    MutexLock lock(mu_);
    closed_ = why;
    if (sending_ || told_) return;  // Flush uses the queue, and tells.
    dropped = TakeQueue();
    told_ = true;
  }
  owner_.OnClosed(why);
}

}  // namespace embla
