#include "server/collective/testing/fake_nccl.h"

#include <algorithm>

#include "core/base/check.h"
#include "server/gpu/testing/simulated_stream.h"

namespace embla {

FakeNccl::~FakeNccl() {
  MutexLock lock(mu_);
  EMBLA_CHECK(comms_.empty());
}

void FakeNccl::SetAsyncError(int error) {
  MutexLock lock(mu_);
  async_error_ = error;
}

void FakeNccl::SetResult(int result) {
  MutexLock lock(mu_);
  result_ = result;
}

int FakeNccl::aborts() const {
  MutexLock lock(mu_);
  return aborts_;
}

int FakeNccl::under_way() const {
  const MutexLock lock(mu_);
  return under_way_;
}

int FakeNccl::GetUniqueId(NcclId*) {
  MutexLock lock(mu_);
  return result_;
}

int FakeNccl::CommInitRankConfig(NcclComm* comm, int ranks, NcclId, int rank, NcclConfig* config) {
  EMBLA_CHECK(config != nullptr && config->blocking == 0);  // Else GroupEnd may never return.
  MutexLock lock(mu_);
  if (result_ != kNcclSuccess) return result_;
  if (comms_.empty()) connected_ = 0;
  ++connected_;
  const auto made = std::make_shared<ncclComm>(ncclComm{rank, ranks, false});
  *comm = made.get();
  comms_.emplace(made.get(), made);
  return kNcclInProgress;
}

int FakeNccl::CommAbort(NcclComm comm) {
  MutexLock lock(mu_);
  const auto found = comms_.find(comm);
  EMBLA_CHECK(found != comms_.end());
  found->second->aborted = true;
  ++aborts_;
  comms_.erase(found);
  if (comms_.empty()) mail_.clear();
  return kNcclSuccess;
}

std::shared_ptr<ncclComm> FakeNccl::Find(NcclComm comm) const {
  MutexLock lock(mu_);
  const auto found = comms_.find(comm);
  EMBLA_CHECK(found != comms_.end());  // Used after it was destroyed or aborted.
  return found->second;
}

int FakeNccl::CommGetAsyncError(NcclComm comm, int* error) {
  const std::shared_ptr<ncclComm> found = Find(comm);
  MutexLock lock(mu_);
  *error = connected_ < found->ranks ? kNcclInProgress : async_error_;
  return kNcclSuccess;
}

std::vector<FakeNccl::Operation>& FakeNccl::Group() {
  thread_local std::vector<Operation> group;
  return group;
}

int FakeNccl::GroupStart() {
  EMBLA_CHECK(Group().empty());
  return kNcclSuccess;
}

int FakeNccl::Add(Operation operation, int type) {
  EMBLA_CHECK(type == kNcclFloat32 && operation.peer >= 0 &&
              operation.peer < operation.comm->ranks);
  {
    MutexLock lock(mu_);
    if (result_ != kNcclSuccess) return result_;
  }
  Group().push_back(std::move(operation));
  return kNcclSuccess;
}

int FakeNccl::Send(const void* data, std::size_t count, int type, int peer, NcclComm comm,
                   void* stream) {
  return Add({true, static_cast<float*>(const_cast<void*>(data)), count, peer, Find(comm), stream},
             type);
}

int FakeNccl::Recv(void* data, std::size_t count, int type, int peer, NcclComm comm, void* stream) {
  return Add({false, static_cast<float*>(data), count, peer, Find(comm), stream}, type);
}

int FakeNccl::GroupEnd() {
  const auto operations = std::make_shared<std::vector<Operation>>(std::exchange(Group(), {}));
  if (operations->empty()) return kNcclSuccess;
  {
    const MutexLock lock(mu_);
    ++under_way_;
  }
  auto* const stream = static_cast<gpu::SimulatedStream*>(operations->front().stream);
  const absl::Status queued =
      stream->QueueAttempts([this, operations] { return Attempt(*operations); });
  return queued.ok() ? kNcclInProgress : 1;  // ncclUnhandledCudaError.
}

bool FakeNccl::Attempt(std::vector<Operation>& operations) {
  MutexLock lock(mu_);
  bool all_done = true;
  for (Operation& operation : operations) {
    // Aborting ends the kernel.
    if (operation.done || operation.comm->aborted) continue;
    const int self = operation.comm->rank;
    if (operation.is_send) {
      mail_[{self, operation.peer}].emplace_back(operation.data, operation.data + operation.count);
      operation.done = true;
      continue;
    }
    Mailbox& box = mail_[{operation.peer, self}];
    if (box.empty()) {
      all_done = false;
      continue;
    }
    EMBLA_CHECK(box.front().size() == operation.count);
    std::copy(box.front().begin(), box.front().end(), operation.data);
    box.pop_front();
    operation.done = true;
  }
  if (all_done) --under_way_;
  return all_done;
}

std::string FakeNccl::ErrorText(int result) { return "fake error " + std::to_string(result); }

}  // namespace embla
