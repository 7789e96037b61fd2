// NCCL for simulated GPUs: what a rank sends waits in a mailbox until the other's stream takes it.
// Its communicators must not block; they are in progress until all ranks have connected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "server/collective/nccl_library.h"

namespace embla {

// One rank's.
struct ncclComm {
  int rank = 0;
  int ranks = 0;
  bool aborted = false;  // Guarded by FakeNccl::mu_.
};

// Thread safety: as NCCL's; a group belongs to the thread that began it. One clique at a time.
class FakeNccl final : public NcclLibrary {
 public:
  // Checks that every communicator was aborted.
  ~FakeNccl() override;

  // Sets the result of CommGetAsyncError.
  void SetAsyncError(int error);
  // Sets the result of the functions; 0: success.
  void SetResult(int result);
  int aborts() const;
  // Groups that streams have begun, and wait in for another rank.
  int under_way() const;

  int GetUniqueId(NcclId* id) override;
  int CommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank,
                         NcclConfig* config) override;
  int CommAbort(NcclComm comm) override;
  int CommGetAsyncError(NcclComm comm, int* error) override;
  int GroupStart() override;
  int GroupEnd() override;
  int Send(const void* data, std::size_t count, int type, int peer, NcclComm comm,
           void* stream) override;
  int Recv(void* data, std::size_t count, int type, int peer, NcclComm comm, void* stream) override;
  std::string ErrorText(int result) override;

 private:
  struct Operation {
    bool is_send = false;
    float* data = nullptr;  // Simulated device memory.
    std::size_t count = 0;
    int peer = 0;
    std::shared_ptr<ncclComm> comm;
    void* stream = nullptr;
    bool done = false;
  };
  using Mailbox = std::deque<std::vector<float>>;

  int Add(Operation operation, int type);
  // One more try of what a stream has to do; whether that is all of it.
  bool Attempt(std::vector<Operation>& operations);
  std::shared_ptr<ncclComm> Find(NcclComm comm) const;

  // Operations of this thread's group; empty outside of one.
  static std::vector<Operation>& Group();

  mutable Mutex mu_;
  int result_ ABSL_GUARDED_BY(mu_) = kNcclSuccess;
  int async_error_ ABSL_GUARDED_BY(mu_) = kNcclSuccess;
  int connected_ ABSL_GUARDED_BY(mu_) = 0;  // Ranks of the clique that have connected.
  int aborts_ ABSL_GUARDED_BY(mu_) = 0;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<NcclComm, std::shared_ptr<ncclComm>> comms_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<int, int>, Mailbox> mail_ ABSL_GUARDED_BY(mu_);  // By (sender, receiver).
};

}  // namespace embla
