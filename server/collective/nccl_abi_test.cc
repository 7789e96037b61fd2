// Compares the declarations in nccl_library.h with nccl.h.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"
#include "server/collective/nccl_library.h"

namespace embla {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId) && alignof(NcclId) == alignof(ncclUniqueId));
static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclFloat32 == ncclFloat32);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(std::is_same_v<decltype(ncclGetVersion), ncclResult_t(int*)>);
static_assert(std::is_same_v<decltype(ncclGetUniqueId), ncclResult_t(ncclUniqueId*)>);
static_assert(std::is_same_v<decltype(ncclCommInitRankConfig),
                             ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(std::is_same_v<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);
static_assert(
    std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(ncclGroupStart), ncclResult_t()>);
static_assert(std::is_same_v<decltype(ncclGroupEnd), ncclResult_t()>);
static_assert(
    std::is_same_v<decltype(ncclSend), ncclResult_t(const void*, std::size_t, ncclDataType_t, int,
                                                    ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclRecv), ncclResult_t(void*, std::size_t, ncclDataType_t,
                                                              int, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclGetErrorString), const char*(ncclResult_t)>);

TEST(NcclAbi, IsCheckedWhenThisIsCompiled) {}

}  // namespace
}  // namespace embla
