// libFuzzer entry over the request decoders: clang builds only (target embla_request_fuzzer).
#include <cstddef>
#include <cstdint>

#include "core/wire/request_invariants.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static embla::BufferPool pool;
  grpc::Slice slice(data, size);
  embla::wire::DecodeEveryWay(grpc::ByteBuffer(&slice, 1), pool);
  return 0;
}
