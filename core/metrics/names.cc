#include "core/metrics/names.h"

#include "core/metrics/gpu_names.h"

namespace embla {
namespace {

constexpr MetricInfo kAll[] = {
    metric::kBuildInfo,
    metric::kPlanVersion,
    metric::kRequests,
    metric::kRequestLatency,
    metric::kRequestBytes,
    metric::kReplyBytes,
    metric::kStreams,
    metric::kRowsLookedUp,
    metric::kRowsUpdated,
    metric::kGradientRows,
    metric::kIdsOutOfRange,
    metric::kUpdatesReplayed,
    metric::kQueueDepth,
    metric::kQueueDelay,
    metric::kDeviceBusy,
    metric::kDeviceMemory,
    metric::kGpuTime,
    metric::kGpuLinkBytes,
    metric::kGpuMemory,
    metric::kGpuStopped,
    metric::kRowCacheHits,
    metric::kRowCacheMisses,
    metric::kRowCacheEvictions,
    metric::kRowCacheWriteBacks,
    metric::kCollectiveTime,
    metric::kTableRows,
    metric::kTableBytes,
    metric::kZchHits,
    metric::kZchUnseen,
    metric::kZchInserts,
    metric::kZchResidents,
    metric::kZchEvictions,
    metric::kZchRejections,
    metric::kZchCollisionsAvoided,
    metric::kZchEvictedAge,
    metric::kZchEvictionsUnread,
    metric::kReplicationLag,
    metric::kReplicaSyncs,
    metric::kReplicaSyncTime,
    metric::kReplicaDivergenceMax,
    metric::kReplicaDivergenceRms,
    metric::kMoves,
    metric::kMoveBytes,
    metric::kMoveChunksResent,
    metric::kMoveYields,
    metric::kUnitFrozen,
    metric::kUnitsMoving,
    metric::kJournalBytes,
    metric::kJournalQueueBytes,
    metric::kJournalSync,
    metric::kJournalRecovery,
    metric::kNodeLive,
    metric::kNodePlanVersion,
    metric::kHeartbeats,
    metric::kPlanChanges,
    metric::kTables,
    metric::kSessionsOpened,
    metric::kClientRequests,
    metric::kClientLatency,
    metric::kClientSentBytes,
    metric::kClientReceivedBytes,
    metric::kClientRetries,
    metric::kClientRetryBudgetExhausted,
    metric::kClientPlanRefreshes,
};

}  // namespace

std::span<const MetricInfo> AllMetrics() { return kAll; }

}  // namespace embla
