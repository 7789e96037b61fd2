#include "client/transport/pending_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace embla::client {

FinishedCall PendingCalls::Finish(Pending pending, absl::Status status) {
  if (pending.seal != nullptr) pending.seal->Break();
  return {std::move(pending.request.done),
          {std::move(status), pending.sent_bytes, pending.received_bytes}};
}

absl::Status PendingCalls::CheckRows(const Pending& pending) {
  const std::size_t expected = pending.request.reply_rows().size();
  if (!pending.too_many_rows && pending.rows_bytes == expected) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the reply has ", pending.rows_bytes, " bytes of rows, not ", expected));
}

void PendingCalls::Add(std::uint64_t sequence, DataRequest request, std::size_t sent_bytes,
                       std::optional<wire::SplitMessage> withheld,
                       std::shared_ptr<wire::Seal> seal) {
  calls_.emplace(sequence, Pending{.request = std::move(request),
                                   .sent_bytes = sent_bytes,
                                   .withheld = std::move(withheld),
                                   .seal = std::move(seal)});
}

std::byte* PendingCalls::PlaceRows(std::uint64_t sequence, std::size_t size) {
  const auto entry = calls_.find(sequence);
  if (entry != calls_.end()) {
    Pending& pending = entry->second;
    const std::span<std::byte> rows = pending.request.reply_rows();
    const std::size_t begin = pending.rows_bytes;
    pending.rows_bytes += size;
    if (begin <= rows.size() && size <= rows.size() - begin) {
      pending.receiving = true;
      return rows.data() + begin;
    }
    pending.too_many_rows = true;
  }
  return nullptr;
}

std::optional<wire::SplitMessage> PendingCalls::TakeWithheld(const wire::StreamReply& reply,
                                                             std::size_t bytes) {
  const auto entry = calls_.find(reply.sequence);
  if (entry == calls_.end() || reply.kind != wire::StreamReply::Kind::kLookup) return std::nullopt;
  Pending& pending = entry->second;
  std::optional<wire::SplitMessage> message = std::exchange(pending.withheld, std::nullopt);
  if (!message.has_value()) return std::nullopt;
  pending.received_bytes += bytes;
  pending.sent_bytes += message->bytes();
  return message;
}

std::optional<FinishedCall> PendingCalls::Receive(wire::StreamReply reply, std::size_t bytes) {
  const auto entry = calls_.find(reply.sequence);
  if (entry == calls_.end()) return std::nullopt;  // Its deadline has passed.
  Pending& pending = entry->second;
  pending.receiving = false;
  late_since_ = absl::InfiniteFuture();
  pending.received_bytes += bytes;
  if (reply.more) return std::nullopt;
  absl::Status status = reply.status;
  if (status.ok()) {
    const bool is_lookup = reply.kind == wire::StreamReply::Kind::kLookup;
    if (is_lookup != pending.request.is_lookup() || pending.withheld.has_value()) {
      status = absl::InternalError("the reply is of another kind than the request");
    } else if (!is_lookup || reply.refused.empty()) {
      status = CheckRows(pending);
    }
  }
  FinishedCall finished = Finish(std::move(pending), std::move(status));
  finished.reply.plan_version = reply.plan_version;
  finished.reply.refused = std::move(reply.refused);
  finished.reply.refused_claims = std::move(reply.refused_claims);
  calls_.erase(entry);
  return finished;
}

absl::Time PendingCalls::Expire(absl::Time now, std::vector<FinishedCall>& finished) {
  absl::Time next = absl::InfiniteFuture();
  for (auto it = calls_.begin(); it != calls_.end();) {
    const auto entry = it++;
    const absl::Time deadline = entry->second.request.deadline;
    if (deadline > now || entry->second.receiving) {
      if (deadline <= now) late_since_ = std::min(late_since_, deadline);
      // A message that is being copied now is done in a moment.
      next = std::min(next, std::max(deadline, now + absl::Milliseconds(1)));
      continue;
    }
    finished.push_back(
        Finish(std::move(entry->second), absl::DeadlineExceededError("no reply in time")));
    calls_.erase(entry);
  }
  return next;
}

std::vector<FinishedCall> PendingCalls::FailAll(const absl::Status& status) {
  std::vector<FinishedCall> finished;
  for (auto& [sequence, pending] : calls_) finished.push_back(Finish(std::move(pending), status));
  calls_.clear();
  return finished;
}

}  // namespace embla::client
