// Calls of methods of any kind, with bytes in place of a message, for tests that walk over all
// methods of all services.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

namespace embla {

enum class RawReplies : std::uint8_t { kAll, kFirst };

// Sends `bytes` as the only message of a call of `method` ("/package.Service/Method"). With
// RawReplies::kFirst the call is cancelled after its first answer: some streams never end. The
// bytes of answers are added to `answers`, unless it is null.
inline grpc::Status CallRaw(grpc::GenericStub& stub, const std::string& method,
                            const std::string& bytes, RawReplies replies,
                            std::string* answers = nullptr) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, method, &queue);
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  stream->StartCall(nullptr);
  await();
  grpc::Slice slice(bytes);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  await();
  grpc::ByteBuffer reply;
  stream->Read(&reply, nullptr);
  while (await()) {
    grpc::Slice answer;
    if (answers != nullptr && reply.DumpToSingleSlice(&answer).ok()) {
      answers->append(reinterpret_cast<const char*>(answer.begin()), answer.size());
    }
    if (replies == RawReplies::kFirst) context.TryCancel();
    stream->Read(&reply, nullptr);
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  await();
  return status;
}

}  // namespace embla
