#include "server/coordinator/directory_records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

constexpr std::string_view kDirectoriesPrefix = "directories/";
constexpr absl::Duration kWriteInterval = absl::Seconds(10);
constexpr std::size_t kRecordsPerKeeper = 3;
constexpr std::size_t kTestimonyBytesMax = 4096;

DirectoryRecord TakeRecord(JsonFields& fields) {
  DirectoryRecord record;
  record.directory = fields.Text("directory");
  record.process = fields.Unsigned("process", 0, UINT64_MAX);
  record.boot_id = fields.Unsigned("boot_id", 0, UINT64_MAX);
  record.plan = PlanVersion{fields.Unsigned("plan", 0, UINT64_MAX)};
  record.log_position = fields.Unsigned("log_position", 0, UINT64_MAX);
  std::uint64_t lost_until = 0;
  fields.MaybeUnsigned("lost_until", &lost_until);
  record.lost_until = Revision{lost_until};
  return record;
}

absl::StatusOr<DirectoryRecord> RecordFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "directory record");
  DirectoryRecord record = TakeRecord(fields);
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return record;
}

Json ToJson(const DirectoryRecord& record) {
  Json json = {{"directory", record.directory},
               {"process", record.process},
               {"boot_id", record.boot_id},
               {"plan", ToInt(record.plan)},
               {"log_position", record.log_position}};
  if (record.lost_until != kAbsent) json["lost_until"] = ToInt(record.lost_until);
  return json;
}

// Whether the process that comes is the one that the record is of.
bool IsOf(const DirectoryRecord& record, std::uint64_t boot_id, const NodePast& past) {
  return record.boot_id == boot_id && record.directory == past.directory_id;
}

std::int64_t RowsOn(const std::vector<Slice>& tiling, NodeId node) {
  std::int64_t rows = 0;
  for (const Slice& slice : tiling) {
    if (slice.device.node == node) rows += slice.rows();
  }
  return rows;
}

}  // namespace

std::string FormatTestimony(const Testimony& testimony) {
  Json nodes = Json::array();
  for (const auto& [node, record] : testimony.records) {
    Json json = ToJson(record);
    json["node"] = ToInt(node);
    nodes.push_back(std::move(json));
  }
  return DumpJson({{"boot", testimony.boot},
                   {"generation", testimony.generation},
                   {"revision", ToInt(testimony.revision)},
                   {"nodes", std::move(nodes)}});
}

absl::StatusOr<Testimony> ParseTestimony(std::string_view text) {
  if (text.size() > kTestimonyBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a testimony of ", text.size(), " bytes, allowed is ", kTestimonyBytesMax));
  }
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "testimony");
  Testimony testimony;
  testimony.boot = static_cast<std::uint32_t>(fields.Unsigned("boot", 0, UINT32_MAX));
  testimony.generation = fields.Unsigned("generation", 0, UINT64_MAX);
  testimony.revision = Revision{fields.Unsigned("revision", 0, UINT64_MAX)};
  for (const Json& entry : fields.Array("nodes")) {
    JsonFields of_node(entry, "node of a testimony");
    const NodeId node{static_cast<std::uint32_t>(of_node.Unsigned("node", 1, UINT32_MAX))};
    testimony.records[node] = TakeRecord(of_node);
    EMBLA_RETURN_IF_ERROR(of_node.Finish());
  }
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return testimony;
}

std::vector<LostRows> RowsOnlyOn(const Plan& plan, NodeId node) {
  std::vector<LostRows> lost;
  for (const TablePlan& table : plan.tables()) {
    LostRows rows{.table = table.spec.name};
    for (const std::vector<Slice>& tiling : table.replicas) {
      rows.rows += static_cast<std::uint64_t>(RowsOn(tiling, node));
      if (table.replicated()) break;  // The primary alone: it brings the other copies up to date.
    }
    if (rows.rows > 0) lost.push_back(std::move(rows));
  }
  return lost;
}

absl::StatusOr<DirectoryRecords> DirectoryRecords::Load(const StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(kDirectoriesPrefix));
  DirectoryRecords records;
  for (const StateEntry& entry : entries) {
    std::uint32_t id = 0;
    absl::StatusOr<DirectoryRecord> record = RecordFromJson(entry.value);
    if (!absl::SimpleAtoi(entry.key.substr(kDirectoriesPrefix.size()), &id) || !record.ok()) {
      return absl::DataLossError(
          absl::StrCat("state key ", entry.key, " is not readable: ", record.status().message()));
    }
    records.records_[NodeId{id}] = *std::move(record);
  }
  return records;
}

std::string DirectoryRecords::WhatIsMissing(NodeId node, std::uint64_t boot_id,
                                            const NodePast& past) const {
  const auto found = records_.find(node);
  if (found == records_.end() || IsOf(found->second, boot_id, past)) return "";
  const DirectoryRecord& record = found->second;
  if (record.directory.empty()) {
    return "its rows were in the memory of a process that has ended (there was no --data-dir)";
  }
  if (past.directory_id.empty()) return "it comes without the --data-dir that it had";
  if (past.directory_id != record.directory) {
    return "its --data-dir is not the one that it had, but a new or another one";
  }
  if (past.process <= record.process) {
    return absl::StrCat("its --data-dir is an older copy: it was opened ", past.process,
                        " times, and had been opened ", record.process,
                        " times when the node last registered");
  }
  if (past.log_position < record.log_position) {
    return absl::StrCat("its --data-dir is an older copy: the log goes to position ",
                        past.log_position, ", and had ", record.log_position);
  }
  if (past.plan_version < record.plan) {
    return absl::StrCat("its --data-dir is an older copy: it knows plan ", ToInt(past.plan_version),
                        ", and had plan ", ToInt(record.plan));
  }
  return "";
}

bool DirectoryRecords::IsKnownProcess(NodeId node, std::uint64_t boot_id,
                                      const NodePast& past) const {
  const auto found = records_.find(node);
  return found != records_.end() && IsOf(found->second, boot_id, past);
}

std::optional<bool> DirectoryRecords::HasDirectory(NodeId node) const {
  const auto found = records_.find(node);
  if (found == records_.end()) return std::nullopt;
  return !found->second.directory.empty();
}

bool DirectoryRecords::IsOlder(NodeId node, const DirectoryRecord& told) const {
  const auto found = records_.find(node);
  return found != records_.end() && found->second.directory == told.directory &&
         found->second.boot_id != told.boot_id && found->second.process <= told.process;
}

std::map<NodeId, DirectoryRecord> DirectoryRecords::RecordsFor(NodeId keeper) const {
  std::map<NodeId, DirectoryRecord> told;
  auto next = records_.upper_bound(keeper);
  for (std::size_t i = 0; i < records_.size() && told.size() < kRecordsPerKeeper; ++i, ++next) {
    if (next == records_.end()) next = records_.begin();
    if (next->first == keeper) continue;
    told.insert(*next).first->second.lost_until = kAbsent;
  }
  return told;
}

absl::Status DirectoryRecords::Heed(StateStore& store, NodeId node, const DirectoryRecord& told,
                                    bool is_newer) {
  const auto known = records_.find(node);
  const bool is_known = known != records_.end();
  const DirectoryRecord before = is_known ? known->second : DirectoryRecord();
  DirectoryRecord after = told;
  after.lost_until = before.lost_until;
  if (is_known && before.directory == told.directory && before.boot_id == told.boot_id) {
    after.plan = std::max(before.plan, told.plan);
    after.log_position = std::max(before.log_position, told.log_position);
  } else if (!is_newer) {
    return absl::OkStatus();
  }
  if (after == before) return absl::OkStatus();
  records_[node] = after;
  const absl::Status written = Commit(store, {node});
  if (written.ok()) return written;
  if (is_known) {
    records_[node] = before;
  } else {
    records_.erase(node);
  }
  return written;
}

absl::Status DirectoryRecords::Register(StateStore& store, NodeId node, std::uint64_t boot_id,
                                        const NodePast& past, bool has_lost) {
  DirectoryRecord& record = records_[node];
  if (IsOf(record, boot_id, past)) return absl::OkStatus();
  const Revision lost_until = has_lost ? store.revision() : record.lost_until;
  const DirectoryRecord before = std::exchange(record, {.directory = past.directory_id,
                                                        .process = past.process,
                                                        .boot_id = boot_id,
                                                        .plan = past.plan_version,
                                                        .log_position = past.log_position,
                                                        .lost_until = lost_until});
  const absl::Status written = Commit(store, {node});
  if (!written.ok()) record = before;
  return written;
}

bool DirectoryRecords::IsLost(NodeId node, Revision written) const {
  const auto found = records_.find(node);
  return found != records_.end() && written != kAbsent && written <= found->second.lost_until;
}

StateWrite DirectoryRecords::ForgetWrite(NodeId node) {
  return {absl::StrFormat("directories/%010d", ToInt(node)), std::nullopt};
}

void DirectoryRecords::Forget(NodeId node) {
  records_.erase(node);
  unwritten_.erase(node);
}

void DirectoryRecords::Hear(NodeId node, PlanVersion plan, std::uint64_t log_position) {
  const auto found = records_.find(node);
  if (found == records_.end() || found->second.directory.empty()) return;
  DirectoryRecord& record = found->second;
  if (plan <= record.plan && log_position <= record.log_position) return;
  record.plan = std::max(record.plan, plan);
  record.log_position = std::max(record.log_position, log_position);
  unwritten_.insert(node);
}

void DirectoryRecords::Write(StateStore& store, NodeId node) {
  if (!unwritten_.contains(node)) return;
  const absl::Status written = Commit(store, {node});
  if (!written.ok()) {
    LogWarning("coordinator",
               "the record of a node's directory is not written yet node=", ToInt(node),
               " reason=", Message(written));
  }
}

void DirectoryRecords::WriteAtTimes(StateStore& store, absl::Time now) {
  if (unwritten_.empty() || now - written_at_ < kWriteInterval) return;
  written_at_ = now;
  std::vector<NodeId> nodes(unwritten_.begin(), unwritten_.end());
  nodes.resize(std::min(nodes.size(), kStateCommitOpsMax));
  const absl::Status written = Commit(store, nodes);
  if (!written.ok()) {
    LogWarning("coordinator",
               "records of nodes' directories are not written yet reason=", Message(written));
  }
}

absl::Status DirectoryRecords::Commit(StateStore& store, const std::vector<NodeId>& nodes) {
  std::vector<StateWrite> writes;
  for (const NodeId node : nodes) {
    writes.push_back(
        {absl::StrFormat("directories/%010d", ToInt(node)), DumpJson(ToJson(records_.at(node)))});
  }
  EMBLA_RETURN_IF_ERROR(store.Commit({}, writes).status());
  for (const NodeId node : nodes) unwritten_.erase(node);
  return absl::OkStatus();
}

}  // namespace embla
