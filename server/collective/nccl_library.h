// The part of NCCL that is used here. The library is found when a node asks for it, so that
// programs start without it; its declarations are repeated here (nccl_abi_test compares them with
// nccl.h).
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace embla {

// ncclUniqueId.
struct NcclId {
  char internal[128];
};
// ncclComm_t.
using NcclComm = struct ncclComm*;
// ncclResult_t.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
// ncclDataType_t.
inline constexpr int kNcclFloat32 = 7;

// ncclConfig_t of NCCL 2.14, which newer ones read as such: calls of a communicator return at once,
// and CommGetAsyncError tells when what they began is done.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
  int undefined = INT_MIN;  // A field of later versions; 2.14 has none here.
};

struct NcclOptions {
  // How long a rank waits for the others in one exchange, and all of them when they connect.
  absl::Duration timeout = absl::Seconds(30);
};

// Every function is NCCL's of that name and returns its result code.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;

  virtual int GetUniqueId(NcclId* id) = 0;
  virtual int CommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank,
                                 NcclConfig* config) = 0;
  virtual int CommAbort(NcclComm comm) = 0;
  virtual int CommGetAsyncError(NcclComm comm, int* error) = 0;
  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual int Send(const void* data, std::size_t count, int type, int peer, NcclComm comm,
                   void* stream) = 0;
  virtual int Recv(void* data, std::size_t count, int type, int peer, NcclComm comm,
                   void* stream) = 0;
  virtual std::string ErrorText(int result) = 0;
};

// libnccl.so.2, as the system finds it. FailedPrecondition: it is not there, or older than 2.14;
// says which.
absl::StatusOr<std::unique_ptr<NcclLibrary>> LoadNccl();

}  // namespace embla
