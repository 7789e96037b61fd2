// Drives Redis as TensorFlow Recommenders Addons does: the rows are binary values in a hash whose
// fields are row numbers of 8 bytes. A lookup is HMGET; an SGD step is HMGET, the step in the
// client, then HMSET; a command has 1024 fields, and the commands of a request are pipelined.
// Another client's steps between HMGET and HMSET would be lost, so updates go one at a time.
//
//   redis_driver SOCKET TABLES ROWS DIM IDS BAG DTYPE EXPONENT      cases: see driver_loop.h
//
// SOCKET: the unix socket of a redis-server whose data this program deletes.
#include <hiredis/hiredis.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <string_view>

#include "bench/peers/driver_loop.h"
#include "bench/peers/requests.h"

namespace embla::peers {
namespace {

constexpr std::size_t kFieldsPerCommand = 1024;
constexpr std::string_view kHash = "rows";

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

class Redis : public Peer {
 public:
  // Requires: a server listens at `socket`.
  Redis(const Shape& shape, const char* socket)
      : shape_(shape), context_(redisConnectUnix(socket)) {
    if (context_ == nullptr || context_->err != 0) Fail("cannot connect");
  }
  ~Redis() override { redisFree(context_); }

  std::vector<Operation> Operations() const override {
    if (shape_.is_bf16) return {Operation::kLookup};
    return {Operation::kLookup, Operation::kSgd};
  }

  void Load() {
    redisAppendCommand(context_, "FLUSHALL");
    Receive();
    std::vector<std::uint64_t> rows;
    std::vector<char> values;
    for (std::int64_t row = 0; row < shape_.all_rows(); ++row) {
      rows.push_back(row);
      values.resize(rows.size() * shape_.row_bytes());
      FillRow(shape_, row, values.data() + values.size() - shape_.row_bytes());
      if (rows.size() < kFieldsPerCommand * 4 && row + 1 < shape_.all_rows()) continue;
      Set(rows, values.data());
      rows.clear();
    }
  }

  void Begin(Operation operation, std::span<const std::uint64_t> rows, Slot& slot) override {
    slot.distinct.Find(rows);
    const std::vector<std::uint64_t>& distinct = slot.distinct.rows();
    SendGet(distinct);
    if (operation == Operation::kLookup) {
      lookups_.push_back(&slot);
      return;
    }
    slot.distinct.SumGradients(shape_, slot.gradients.data(), slot.sums);
    ReceiveRows(distinct.size());
    for (std::size_t i = 0; i < slot.sums.size(); ++i) {
      float value = 0.0F;
      char* bytes = found_.data() + i * sizeof(value);
      std::memcpy(&value, bytes, sizeof(value));
      value -= kLearningRate * slot.sums[i];
      std::memcpy(bytes, &value, sizeof(value));
    }
    Set(distinct, found_.data());
    slot.done();
  }

  bool EndOne() override {
    if (lookups_.empty()) return false;
    Slot& slot = *lookups_.front();
    lookups_.pop_front();
    ReceiveRows(slot.distinct.rows().size());
    slot.distinct.Place(shape_, found_.data(), slot.result);
    slot.done();
    return true;
  }

 private:
  [[noreturn]] void Fail(const char* what) const {
    std::cerr << "redis: " << what << ": " << (context_ == nullptr ? "" : context_->errstr) << "\n";
    std::exit(1);
  }

  Reply Receive() {
    void* reply = nullptr;
    if (redisGetReply(context_, &reply) != REDIS_OK) Fail("no reply");
    Reply owned(static_cast<redisReply*>(reply));
    if (owned->type == REDIS_REPLY_ERROR) Fail(owned->str);
    return owned;
  }

  void Append(std::string_view text) {
    words_.push_back(text.data());
    sizes_.push_back(text.size());
  }

  void BeginCommand(std::string_view name) {
    words_.clear();
    sizes_.clear();
    Append(name);
    Append(kHash);
  }

  void Send() {
    redisAppendCommandArgv(context_, static_cast<int>(words_.size()), words_.data(), sizes_.data());
  }

  void AppendField(const std::uint64_t& row) {
    Append({reinterpret_cast<const char*>(&row), sizeof(row)});
  }

  void SendGet(std::span<const std::uint64_t> rows) {
    while (!rows.empty()) {
      const auto part = rows.first(std::min(rows.size(), kFieldsPerCommand));
      BeginCommand("HMGET");
      for (const std::uint64_t& row : part) AppendField(row);
      Send();
      rows = rows.subspan(part.size());
    }
    // The server may begin while the client prepares its next request.
    int is_done = 0;
    while (is_done == 0) {
      if (redisBufferWrite(context_, &is_done) != REDIS_OK) Fail("cannot write");
    }
  }

  void Set(std::span<const std::uint64_t> rows, const char* values) {
    std::size_t commands = 0;
    for (; !rows.empty(); ++commands) {
      const auto part = rows.first(std::min(rows.size(), kFieldsPerCommand));
      BeginCommand("HMSET");
      for (const std::uint64_t& row : part) {
        AppendField(row);
        Append({values, shape_.row_bytes()});
        values += shape_.row_bytes();
      }
      Send();
      rows = rows.subspan(part.size());
    }
    while (commands-- > 0) Receive();
  }

  // Reads the replies to SendGet of `count` rows into found_.
  void ReceiveRows(std::size_t count) {
    found_.resize(count * shape_.row_bytes());
    char* out = found_.data();
    for (std::size_t done = 0; done < count;) {
      const Reply reply = Receive();
      for (std::size_t i = 0; i < reply->elements; ++i, out += shape_.row_bytes()) {
        const redisReply& value = *reply->element[i];
        if (value.type != REDIS_REPLY_STRING || value.len != shape_.row_bytes()) Fail("wrong row");
        std::memcpy(out, value.str, value.len);
      }
      done += reply->elements;
    }
  }

  const Shape shape_;
  redisContext* const context_;
  std::deque<Slot*> lookups_;  // In flight, the oldest first: replies come in that order.
  std::vector<const char*> words_;
  std::vector<std::size_t> sizes_;
  std::vector<char> found_;
};

int Main(std::span<char*> arguments) {
  const std::optional<Shape> shape =
      arguments.size() < 2 ? std::nullopt : Shape::Parse(arguments.subspan(2));
  if (!shape) {
    std::cerr << "usage: redis_driver SOCKET TABLES ROWS DIM IDS BAG DTYPE EXPONENT\n";
    return 2;
  }
  Redis peer(*shape, arguments[1]);
  peer.Load();
  return ServeCases(*shape, peer);
}

}  // namespace
}  // namespace embla::peers

int main(int argc, char** argv) {
  return embla::peers::Main({argv, static_cast<std::size_t>(argc)});
}
