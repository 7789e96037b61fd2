// The name, meaning and labels of every metric, once. docs/metrics.md is the same list for people;
// names_test compares the two. Units are base units and stand at the end: seconds, bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace embla {

enum class MetricKind : std::uint8_t { kCounter = 1, kGauge = 2, kHistogram = 3 };

inline constexpr std::size_t kMetricLabelsMax = 2;

struct MetricInfo {
  std::string_view name;
  MetricKind kind;
  std::string_view help;
  std::array<std::string_view, kMetricLabelsMax> labels = {};  // Unused ones are empty.

  constexpr std::size_t label_count() const {
    return labels[0].empty() ? 0 : labels[1].empty() ? 1 : 2;
  }
};

namespace metric {

using enum MetricKind;

// Every process.
inline constexpr MetricInfo kBuildInfo{
    "embla_build_info", kGauge, "Always 1; the labels say what runs.", {"program", "version"}};
inline constexpr MetricInfo kPlanVersion{"embla_plan_version", kGauge,
                                         "Version of the newest plan this process has."};

// Servers: calls as they arrive. A request inside a stream counts as its own call.
inline constexpr MetricInfo kRequests{
    "embla_requests_total", kCounter, "Calls finished, by status code.", {"method", "code"}};
inline constexpr MetricInfo kRequestLatency{
    "embla_request_latency_seconds", kHistogram, "From a call's arrival to its reply.", {"method"}};
inline constexpr MetricInfo kRequestBytes{
    "embla_request_bytes_total", kCounter, "Message bytes received.", {"method"}};
inline constexpr MetricInfo kReplyBytes{
    "embla_reply_bytes_total", kCounter, "Message bytes sent.", {"method"}};
inline constexpr MetricInfo kStreams{"embla_streams", kGauge, "Data streams open now."};
inline constexpr MetricInfo kConnections{"embla_connections", kGauge,
                                         "Connections open now, of all listeners."};
inline constexpr MetricInfo kConnectionsRefused{
    "embla_connections_refused_total",
    kCounter,
    "Connections closed on arrival, by the limit they met: address or descriptors.",
    {"reason"}};
inline constexpr MetricInfo kConnectionsEnded{
    "embla_connections_ended_total",
    kCounter,
    "Connections that this process ended because of what they did: resets, memory.",
    {"reason"}};
inline constexpr MetricInfo kDescriptorsMax{"embla_descriptors_max", kGauge,
                                            "Files and sockets this process may have open."};
inline constexpr MetricInfo kHeldBytes{
    "embla_held_bytes", kGauge, "Bytes of requests in flight, and of replies nobody has read yet."};

// Shard servers.
inline constexpr MetricInfo kRowsLookedUp{
    "embla_rows_looked_up_total", kCounter, "Ids of lookups served.", {"table"}};
inline constexpr MetricInfo kRowsUpdated{
    "embla_rows_updated_total", kCounter, "Optimizer steps: unique rows per update.", {"table"}};
inline constexpr MetricInfo kGradientRows{"embla_gradient_rows_total",
                                          kCounter,
                                          "Ids of updates applied, duplicates included.",
                                          {"table"}};
inline constexpr MetricInfo kIdsOutOfRange{"embla_ids_out_of_range_total",
                                           kCounter,
                                           "Ids outside the table, refused or ignored.",
                                           {"table"}};
inline constexpr MetricInfo kUpdatesReplayed{
    "embla_updates_replayed_total", kCounter,
    "Updates that had been applied before and were acknowledged again."};
inline constexpr MetricInfo kQueueDepth{
    "embla_device_queue_depth", kGauge, "Batches waiting for a device.", {"device"}};
inline constexpr MetricInfo kQueueDelay{
    "embla_device_queue_seconds", kHistogram, "How long requests waited for a device.", {"device"}};
inline constexpr MetricInfo kDeviceBusy{
    "embla_device_busy_seconds_total", kCounter, "Time a device spent on batches.", {"device"}};
inline constexpr MetricInfo kDeviceMemory{
    "embla_device_memory_bytes", kGauge, "Memory a device may use.", {"device"}};
inline constexpr MetricInfo kTableRows{"embla_table_rows",
                                       kGauge,
                                       "Rows of a table's slices on a device, a row once per "
                                       "column slice.",
                                       {"table", "device"}};
inline constexpr MetricInfo kTableBytes{"embla_table_bytes",
                                        kGauge,
                                        "Memory of a table's slices on a device, optimizer state "
                                        "included.",
                                        {"table", "device"}};
inline constexpr MetricInfo kZchHits{"embla_zch_hits_total",
                                     kCounter,
                                     "Ids of lookups and updates that had a row.",
                                     {"table", "device"}};
inline constexpr MetricInfo kZchUnseen{
    "embla_zch_unseen_total", kCounter, "Ids of lookups that had no row.", {"table", "device"}};
inline constexpr MetricInfo kZchInserts{
    "embla_zch_inserts_total", kCounter, "Ids that got a row.", {"table", "device"}};
inline constexpr MetricInfo kZchResidents{"embla_zch_residents",
                                          kGauge,
                                          "Rows that belong to an id; of embla_table_rows.",
                                          {"table", "device"}};
inline constexpr MetricInfo kZchEvictions{
    "embla_zch_evictions_total",
    kCounter,
    "Ids that lost their row: replaced, expired, idle or removed.",
    {"table", "reason"}};
inline constexpr MetricInfo kZchRejections{
    "embla_zch_rejections_total",
    kCounter,
    "Ids of updates that got no row, their gradients dropped: not_admitted or full.",
    {"table", "reason"}};
inline constexpr MetricInfo kZchCollisionsAvoided{
    "embla_zch_collisions_avoided_total",
    kCounter,
    "Ids that got a row although plain hashing would have given them another id's.",
    {"table", "device"}};
inline constexpr MetricInfo kZchEvictedAge{
    "embla_zch_evicted_age_steps_total",
    kCounter,
    "Sum over evicted ids of the training steps since their last touch.",
    {"table", "device"}};
inline constexpr MetricInfo kZchEvictionsUnread{
    "embla_zch_evictions_unread_total",
    kCounter,
    "Evicted rows that left the buffer for readers before anybody had read them.",
    {"table"}};
inline constexpr MetricInfo kReplicationLag{"embla_replication_lag_updates",
                                            kGauge,
                                            "Updates of a replicated table not yet on every node.",
                                            {"table"}};
inline constexpr MetricInfo kSyncSteps{"embla_sync_steps_total",
                                       kCounter,
                                       "Synchronous steps of a table that this node has made.",
                                       {"table"}};
inline constexpr MetricInfo kSyncStepWait{
    "embla_sync_step_wait_seconds",
    kHistogram,
    "From the arrival of a contribution to a synchronous step to that step.",
    {"table"}};
inline constexpr MetricInfo kSyncStepsWaiting{
    "embla_sync_steps_waiting",
    kGauge,
    "Contributions to synchronous steps that wait for other ranks.",
    {"table"}};
inline constexpr MetricInfo kSyncStepsWaitingBytes{
    "embla_sync_steps_waiting_bytes", kGauge, "Memory of those contributions.", {"table"}};
inline constexpr MetricInfo kReplicaSyncs{"embla_replica_syncs_total",
                                          kCounter,
                                          "Times the copies of a table's replica groups were "
                                          "averaged.",
                                          {"table"}};
inline constexpr MetricInfo kReplicaSyncTime{"embla_replica_sync_seconds",
                                             kHistogram,
                                             "Time a device's averaging of a table took, the "
                                             "slowest device's.",
                                             {"table"}};
inline constexpr MetricInfo kReplicaDivergenceMax{
    "embla_replica_divergence_max",
    kGauge,
    "Largest distance of a weight from the mean of its copies, before the last averaging.",
    {"table"}};
inline constexpr MetricInfo kReplicaDivergenceRms{
    "embla_replica_divergence_rms",
    kGauge,
    "Root of the mean square of those distances, before the last averaging.",
    {"table"}};
inline constexpr MetricInfo kMoves{
    "embla_moves_total", kCounter, "Moves of a unit that are over here, by how.", {"outcome"}};
inline constexpr MetricInfo kMoveBytes{"embla_move_bytes_total", kCounter,
                                       "Bytes of rows that moves sent to other nodes."};
inline constexpr MetricInfo kMoveChunksResent{
    "embla_move_chunks_resent_total", kCounter,
    "Chunks that moves sent again, because their rows changed or the chunk was lost."};
inline constexpr MetricInfo kMoveYields{
    "embla_move_yields_total", kCounter,
    "How often moves were slowed down because requests waited longer for a device."};
inline constexpr MetricInfo kUnitFrozen{
    "embla_unit_frozen_seconds", kHistogram,
    "How long a unit's updates were refused while it was handed over."};
inline constexpr MetricInfo kUnitsFolded{
    "embla_units_folded_total", kCounter,
    "How often the record of updates of a unit at rest joined that of its table."};
inline constexpr MetricInfo kUnitGates{
    "embla_unit_gates", kGauge,
    "Units that go by a record of updates of their own: they take part in a move, or came to rest "
    "lately."};
inline constexpr MetricInfo kUnitsMoving{
    "embla_units_moving", kGauge, "Units that take part in a move here now.", {"state"}};
inline constexpr MetricInfo kJournalBytes{"embla_journal_bytes_total", kCounter,
                                          "Bytes written to the node's journal."};
inline constexpr MetricInfo kJournalQueueBytes{
    "embla_journal_queue_bytes", kGauge,
    "Bytes of records that wait to be written or for their sync, when the last one came."};
inline constexpr MetricInfo kJournalSync{"embla_journal_sync_seconds", kHistogram,
                                         "How long the disk took to sync the journal."};
inline constexpr MetricInfo kJournalRecovery{
    "embla_journal_recovery_seconds", kHistogram,
    "How long this process took to become what its journal says; once per process."};

// Coordinator.
inline constexpr MetricInfo kNodeLive{
    "embla_node_live", kGauge, "1 while a node's heartbeats arrive, else 0.", {"node"}};
inline constexpr MetricInfo kNodePlanVersion{
    "embla_node_plan_version", kGauge, "Plan version a node has installed.", {"node"}};
inline constexpr MetricInfo kHeartbeats{
    "embla_heartbeats_total", kCounter, "Heartbeats received.", {"node"}};
inline constexpr MetricInfo kNodesDied{
    "embla_nodes_died_total", kCounter,
    "Times a node was declared dead since this process started, for want of heartbeats."};
inline constexpr MetricInfo kPlanChanges{"embla_plan_changes_total", kCounter,
                                         "Plan versions published since this process started."};
inline constexpr MetricInfo kTables{"embla_tables", kGauge, "Tables in the plan."};
inline constexpr MetricInfo kTablesAside{"embla_tables_aside", kGauge,
                                         "Tables that are kept aside, not served."};
inline constexpr MetricInfo kStoreGeneration{
    "embla_store_generation", kGauge,
    "1 and how often the state was found to have gone back in time."};
inline constexpr MetricInfo kRowsLost{
    "embla_rows_lost_total", kCounter,
    "Rows that were lost with nodes, or with their directories, and began at initial values."};
inline constexpr MetricInfo kSessionsOpened{"embla_sessions_opened_total", kCounter,
                                            "Trainer sessions opened since this process started."};
inline constexpr MetricInfo kSessionsClosed{
    "embla_sessions_closed_total", kCounter,
    "Trainer sessions closed since this process started: by their clients, by the next client of "
    "the same trainer, or as nothing was heard of them."};
inline constexpr MetricInfo kSessionsExpired{
    "embla_sessions_expired_total", kCounter,
    "Of the closed sessions, those whose leases ran out: their clients died or were cut off."};
inline constexpr MetricInfo kSessionsOpen{
    "embla_sessions_open", kGauge,
    "Open trainer sessions that this coordinator has heard of since it started."};

// Clients.
inline constexpr MetricInfo kClientRequests{"embla_client_requests_total",
                                            kCounter,
                                            "Calls to the cluster finished, by status code.",
                                            {"method", "code"}};
inline constexpr MetricInfo kClientLatency{
    "embla_client_latency_seconds",
    kHistogram,
    "From the caller's call to its result, retries included.",
    {"method"}};
inline constexpr MetricInfo kClientSentBytes{
    "embla_client_sent_bytes_total", kCounter, "Message bytes sent.", {"method"}};
inline constexpr MetricInfo kClientReceivedBytes{
    "embla_client_received_bytes_total", kCounter, "Message bytes received.", {"method"}};
inline constexpr MetricInfo kClientRetries{
    "embla_client_retries_total", kCounter, "Requests sent again.", {"method"}};
inline constexpr MetricInfo kClientRetryBudgetExhausted{
    "embla_client_retry_budget_exhausted_total", kCounter,
    "Failures handed to the caller because the retry budget was empty."};
inline constexpr MetricInfo kClientPlanRefreshes{"embla_client_plan_refreshes_total", kCounter,
                                                 "Newer plans taken over."};

}  // namespace metric

// All of the above, in that order.
std::span<const MetricInfo> AllMetrics();

}  // namespace embla
