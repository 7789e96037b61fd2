#include "server/collective/nccl_library.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

constexpr const char* kFile = "libnccl.so.2";
// The first one with communicators that do not block: 2.14.
constexpr int kVersionMin = 21400;

struct Functions {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*comm_init_rank_config)(NcclComm*, int, NcclId, int, NcclConfig*) = nullptr;
  int (*comm_abort)(NcclComm) = nullptr;
  int (*comm_get_async_error)(NcclComm, int*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int, int, NcclComm, void*) = nullptr;
  int (*recv)(void*, std::size_t, int, int, NcclComm, void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

// The library stays loaded: its own threads may outlive its last user.
class LoadedNccl final : public NcclLibrary {
 public:
  explicit LoadedNccl(const Functions& functions) : functions_(functions) {}

  int GetUniqueId(NcclId* id) override { return functions_.get_unique_id(id); }
  int CommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank,
                         NcclConfig* config) override {
    return functions_.comm_init_rank_config(comm, ranks, id, rank, config);
  }
  int CommAbort(NcclComm comm) override { return functions_.comm_abort(comm); }
  int CommGetAsyncError(NcclComm comm, int* error) override {
    return functions_.comm_get_async_error(comm, error);
  }
  int GroupStart() override { return functions_.group_start(); }
  int GroupEnd() override { return functions_.group_end(); }
  int Send(const void* data, std::size_t count, int type, int peer, NcclComm comm,
           void* stream) override {
    return functions_.send(data, count, type, peer, comm, stream);
  }
  int Recv(void* data, std::size_t count, int type, int peer, NcclComm comm,
           void* stream) override {
    return functions_.recv(data, count, type, peer, comm, stream);
  }
  std::string ErrorText(int result) override { return functions_.error_string(result); }

 private:
  const Functions functions_;
};

template <typename Function>
absl::Status Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(kFile, " has no ", name));
}

absl::Status FindAll(void* library, Functions& f) {
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclGetVersion", f.get_version));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", f.get_unique_id));
  int version = 0;
  if (f.get_version(&version) != kNcclSuccess || version < kVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat(kFile, " is version ", version, "; 2.14 (", kVersionMin, ") is needed"));
  }
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclCommInitRankConfig", f.comm_init_rank_config));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclCommAbort", f.comm_abort));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", f.comm_get_async_error));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclGroupStart", f.group_start));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclGroupEnd", f.group_end));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclSend", f.send));
  EMBLA_RETURN_IF_ERROR(Find(library, "ncclRecv", f.recv));
  return Find(library, "ncclGetErrorString", f.error_string);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclLibrary>> LoadNccl() {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL is not installed, or not where libraries are looked for: ", dlerror()));
  }
  Functions functions;
  EMBLA_RETURN_IF_ERROR(FindAll(library, functions));
  return std::unique_ptr<NcclLibrary>(std::make_unique<LoadedNccl>(functions));
}

}  // namespace embla
