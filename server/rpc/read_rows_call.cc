#include "server/rpc/read_rows_call.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/wire/large_fields.h"
#include "core/wire/status_codec.h"
#include "embla/v1/data.pb.h"

namespace embla {
namespace {

// How often a stalled call looks whether others wait.
constexpr absl::Duration kLookAgain = absl::Milliseconds(100);

// At most so much memory do the request's bytes take once they are parsed: every id ends with a
// byte without the continuation bit, and is held twice for a moment.
std::size_t ParsedBytesMax(const grpc::ByteBuffer& request) {
  std::vector<grpc::Slice> slices;
  if (!request.Dump(&slices).ok()) return 0;
  std::ptrdiff_t numbers = 0;
  for (const grpc::Slice& slice : slices) {
    numbers += std::count_if(slice.begin(), slice.end(), [](std::uint8_t b) { return b < 0x80; });
  }
  return static_cast<std::size_t>(numbers) * 2 * sizeof(RowId);
}

absl::StatusOr<ShardNode::RowsQuery> DecodeQuery(const grpc::ByteBuffer& request,
                                                 std::uint64_t ids_max) {
  grpc::ByteBuffer bytes = request;
  v1::ReadRowsRequest message;
  const wire::PlaceField no_large = [](int, std::size_t) -> absl::StatusOr<std::byte*> {
    return absl::InternalError("no large fields");
  };
  const wire::DecodeLimits limits{.small_bytes_max = ids_max * 10 + 4096};
  EMBLA_RETURN_IF_ERROR(wire::DecodeMessage(bytes, {}, no_large, limits, message));
  if (static_cast<std::uint64_t>(message.row_ids_size()) > ids_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("request has ", message.row_ids_size(), " row_ids, at most ", ids_max));
  }
  if (message.row_begin() < 0 || message.row_end() < message.row_begin()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows [", message.row_begin(), ", ", message.row_end(), ") are not a range"));
  }
  ShardNode::RowsQuery query;
  query.table = TableId{message.table_id()};
  query.row_begin = message.row_begin();
  query.row_end = message.row_end();
  query.with_state = message.with_state();
  query.replica_group = message.replica_group();
  for (const std::int64_t row : message.row_ids()) query.row_ids.push_back(RowId{row});
  return query;
}

}  // namespace

ReadRowsCall* ReadRowsCall::Start(DataContext& context, TaskThreads& threads,
                                  const grpc::ByteBuffer& request,
                                  const std::optional<Identity>& caller,
                                  const InFlightHolder& holder, absl::Time deadline) {
  auto* const call = new ReadRowsCall(context, threads, request.Length(), deadline);
  absl::StatusOr<Hold> hold =
      context.in_flight.Take(holder, request.Length() + ParsedBytesMax(request));
  absl::Status status = hold.status();
  absl::StatusOr<ShardNode::RowsQuery> query = ShardNode::RowsQuery();
  if (status.ok()) {
    call->hold_ = *std::move(hold);
    query = DecodeQuery(request, context.options.read_ids_max);
    status = query.status();
  }
  if (status.ok()) status = context.CheckTables(caller, std::span(&query->table, 1));
  if (status.ok()) {
    status = threads.Post([call, query = *std::move(query)] { call->Read(query); });
  }
  if (!status.ok()) {
    call->End(status);
    call->Unref();
  }
  return call;
}

ReadRowsCall::ReadRowsCall(DataContext& context, const TaskThreads& threads,
                           std::size_t request_bytes, absl::Time deadline)
    : context_(context),
      threads_(threads),
      request_bytes_(request_bytes),
      start_(context.clock.Now()),
      deadline_(deadline) {}

void ReadRowsCall::Read(const ShardNode::RowsQuery& query) {
  End(context_.node.ReadRows(query, [this](Buffer block) { return Send(std::move(block)); }));
  Unref();
}

absl::Status ReadRowsCall::Send(Buffer row_block) {
  grpc::ByteBuffer message = wire::EncodeMessage(
      v1::ReadRowsReply(), {{v1::ReadRowsReply::kRowBlockFieldNumber, std::move(row_block)}});
  const DataServiceOptions& options = context_.options;
  const absl::Time since = context_.clock.Now();
  MutexLock lock(mu_);
  while (writes_.size() >= kAhead && !broken_) {
    const absl::Duration stall_max =
        threads_.HasWaiting() ? options.read_stall_beside_others_max : options.read_stall_max;
    const absl::Duration left = std::min(deadline_, since + stall_max) - context_.clock.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the reader did not take the rows in time");
    }
    changed_.WaitFor(mu_, std::min(left, kLookAgain));
  }
  if (broken_) return absl::CancelledError("the reader is gone");
  reply_bytes_ += message.Length();
  writes_.push_back(std::move(message));
  WriteOrFinish();
  return absl::OkStatus();
}

void ReadRowsCall::End(const absl::Status& status) {
  MutexLock lock(mu_);
  ended_ = true;
  result_ = status;
  context_.Count(context_.read_rows, status, start_, request_bytes_, reply_bytes_);
  WriteOrFinish();
}

void ReadRowsCall::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  writes_.pop_front();
  if (!ok) broken_ = true;
  changed_.NotifyAll();
  WriteOrFinish();
}

void ReadRowsCall::OnCancel() {
  MutexLock lock(mu_);
  broken_ = true;
  changed_.NotifyAll();
  WriteOrFinish();
}

void ReadRowsCall::OnDone() { Unref(); }

void ReadRowsCall::WriteOrFinish() {
  if (writing_ || finished_) return;
  // An error is told at once; blocks that were read before it are of no use.
  if (broken_ || (ended_ && !result_.ok())) writes_.clear();
  if (!writes_.empty()) {
    writing_ = true;
    StartWrite(&writes_.front());
  } else if (ended_) {
    finished_ = true;
    Finish(wire::ToGrpc(context_.Answer(result_)));
  }
}

void ReadRowsCall::Unref() {
  bool last = false;
  {
    MutexLock lock(mu_);
    last = --references_ == 0;
  }
  if (last) delete this;
}

}  // namespace embla
