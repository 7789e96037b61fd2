// The world that the model checker explores: nodes, coordinators, store, network and trainers
// around the production transition functions of server/migration. A value; every step is
// deterministic.
//
// The network never takes a message out: that covers loss (never delivered), delay, reordering and
// duplication. kLoseMessages empties it, so that progress may not lean on a message kept for ever.
// Rows are modelled by counting: update k has a row of its own, in chunk k mod chunks, that counts
// how many times k was applied to it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/migration/coordinator_step.h"
#include "server/migration/guards.h"
#include "server/migration/node_step.h"
#include "server/migration/unit_record.h"

namespace embla::model {

// Nodes of a world have the ids 1, 2, ...
inline int IndexOf(NodeId id) { return static_cast<int>(ToInt(id)) - 1; }

inline constexpr int kUpdatesMax = 4;

struct ModelConfig {
  int nodes = 2;
  int units = 1;
  int updates = 1;
  int sessions = 1;
  int coordinators = 1;
  std::uint32_t chunks = 1;
  std::uint32_t credit = 1;
  std::uint32_t behind_max = 0;
  int moves = 1;                    // Opened at most.
  bool has_crashes = true;          // Nodes and coordinators die and restart.
  bool is_lossy = false;            // kLoseMessages, and the ticks that make up for it.
  bool has_deadlines = false;       // Sources and operators abort.
  bool has_refusals = false;        // A target may have no room.
  bool has_slow_writes = false;     // Rows are written some time after the update was decided.
  bool has_partial_loss = false;    // A dying target may lose staged chunks.
  bool moves_within_nodes = false;  // A node may be the target of its own unit.
  // Updates are acknowledged when their records are synced, and so many times, all units counted
  // apart, a node dies with the records that are not. 0: the record of an update syncs the log.
  int tail_losses = 0;
  // Updates are acknowledged when their rows are written, whatever of the log is synced. What
  // acknowledges, and waits, is no step of the protocol: this is for a test of the checker.
  bool acks_at_once = false;
  // The coordinator is dead as long as a unit is frozen or handed over; who knows what the record
  // would say is not asked at the end.
  bool coordinator_dies = false;
  // So often the directory of a node is copied while its process runs, and put back later: what the
  // process has logged since then is lost. An operator accepts that.
  int restores = 0;
  bool has_no_returns =
      false;  // No unit moves to the node whose directory was copied, the first one.
  Guards guards = {};
};

// By update; kAbsent: the row is not among those sent.
using Rows = std::array<std::int8_t, kUpdatesMax>;
inline constexpr std::int8_t kAbsent = -1;

struct ReleaseFact {
  NodeId from{};
  Release release;
};
struct RecordFact {
  UnitRecord record;
};
struct CancelFact {
  UnitRecord record;
  bool source_is_lost = false;
};
struct HoldsFact {
  NodeId from{};
  Holds holds;
};
struct PullFact {
  NodeId from{};
  Pull pull;
};
struct ChunkFact {
  Chunk chunk;
  Rows rows;
};
struct PutFact {
  UnitRecord expected;
  UnitRecord desired;
};
struct ReportFact {
  NodeId from{};
  MoveReport report;
};
struct Message {
  int to = 0;  // Node; facts about the record and what goes to store or coordinator: 0.
  std::variant<RecordFact, CancelFact, PullFact, ChunkFact, FinalCut, HoldsFact, ReleaseFact,
               Covered, ReportFact, PutFact>
      body;
};

// A node's data directory as it was once.
struct DirectoryCopy {
  UnitDurable logged;
  Rows rows = {};
  std::array<Lsn, kUpdatesMax> row_lsn = {};
};

struct NodeWorld {
  UnitState state;
  UnitDurable logged;  // State after a replay of the log.
  Rows rows = {};
  std::array<Lsn, kUpdatesMax> row_lsn = {};
  std::vector<std::pair<Lsn, int>> deciding;  // Decided and logged, rows not written yet.
  Rows staged = {};
  std::uint8_t admitted = 0;  // By update: passed the first check. Tracked if that matters.
  MoveId changed_for{0};      // The move within the node that its rows last changed devices for.

  // The log that a death may leave, if records of the log are not synced: RELEASE, OWN and what
  // follows it, updates in worlds with tail_losses.
  bool is_tail_open = false;
  UnitDurable synced;
  Rows synced_rows = {};
  std::array<Lsn, kUpdatesMax> synced_row_lsn = {};
  std::uint8_t unsynced = 0;  // By update: logged, and its record is not synced;
  std::uint8_t waiting = 0;   // to be acknowledged when it is.

  std::optional<DirectoryCopy> copy;
  bool is_held = false;    // On a directory that was put back: answers nobody but the coordinator.
  MoveId lost_move{0};     // Moves up to this one were of a life that is lost.
  UnitRecord first_heard;  // The record when it was put back: orders are no older.
};

struct UnitWorld {
  UnitRecord record;  // The store's.
  MoveId within{0};   // The last move that committed, if it was one within a node.
  std::vector<NodeWorld> nodes;
  std::vector<CoordinatedUnit> coordinators;
  std::vector<std::uint16_t> messages;  // Codes of Model::message(), ascending.
  std::uint8_t acked = 0;               // By update.
  int tail_losses = 0;
  int copies = 0;      // Directories that were copied,
  int restores = 0;    // and put back.
  std::string broken;  // A violation that a step found.
};

using World = std::vector<UnitWorld>;

enum class StepKind : std::uint8_t {
  kUpdate,
  kAdmit,
  kWritten,
  kDeliver,
  kReserved,
  kRefused,
  kCoordinatorTick,
  kCoordinatorRestart,
  kStart,
  kCancel,
  kFreezeDeadline,
  kNodeTick,
  kCrash,
  kCrashLosingStaged,
  kCrashLosingTail,
  kSync,
  kCopyDirectory,
  kRestoreDirectory,
  kLetServe,
  kLoseMessages,
};

struct Step {
  StepKind kind{};
  int unit = 0;
  int node = 0;  // Node, or coordinator.
  int arg = 0;   // Update, message or target.
};

class Model {
 public:
  using Config = ModelConfig;
  using World = model::World;
  using Step = model::Step;

  explicit Model(const ModelConfig& config) : config_(config) {}

  const ModelConfig& config() const { return config_; }
  World Initial() const;
  // In a fixed order.
  std::vector<Step> EnabledSteps(const World& world) const;
  void Take(const Step& step, World& world);
  std::string Describe(const Step& step) const;

  // Describes a violation in `world`, if there is one.
  std::optional<std::string> Violation(const World& world) const;
  // All updates acknowledged, no move under way, the owner takes updates.
  bool IsGoal(const World& world) const;

  const Message& message(int id) const { return messages_[id]; }

 private:
  UnitContext ContextOf(int node) const;
  UnitUpdate PartOf(const UnitWorld& unit, int update) const;
  void AddSteps(const UnitWorld& unit, int index, std::vector<Step>& steps) const;
  void AddNodeSteps(const UnitWorld& unit, int index, int node, std::vector<Step>& steps) const;
  void AddDeliveries(const UnitWorld& unit, int index, std::vector<Step>& steps) const;

  void TakeUpdate(UnitWorld& unit, int node, int update);
  void TakeWritten(UnitWorld& unit, int node);
  void Deliver(UnitWorld& unit, const Message& message, int node);
  void DeliverChunk(UnitWorld& unit, int node, const ChunkFact& fact);
  void Put(UnitWorld& unit, const PutFact& put);
  enum class Loss : std::uint8_t { kNothing, kStaged, kTail };
  void Crash(UnitWorld& unit, int node, Loss loss);
  static void WriteDecided(NodeWorld& at);
  void RestoreDirectory(UnitWorld& unit, int node);
  // Whether the record's move is of a life of its source that is lost.
  static bool IsSourceLost(const UnitWorld& unit, const UnitRecord& record);
  static bool HasReleased(const UnitWorld& unit, const UnitRecord& record);
  static bool HasNoWord(const UnitWorld& unit, const UnitRecord& record);
  bool MayServe(const UnitWorld& unit, int node) const;
  // The updates that must be there in the end, after the directory of `restored` was put back.
  std::uint8_t WhatIsLeft(const UnitWorld& unit, int restored) const;
  bool has_tail() const { return config_.tail_losses > 0; }
  bool IsCoordinatorDead(const UnitWorld& unit) const;
  // Everything in the node's log is synced, and whoever waits for that is told.
  void Sync(UnitWorld& unit, int node);
  // Update `update` was written, now or before: acknowledged, once it is synced.
  void Acknowledge(UnitWorld& unit, int node, int update);
  // Steps node or coordinator and carries its actions out.
  std::optional<PartAnswer> StepAt(UnitWorld& unit, int node, const NodeEvent& event,
                                   const Rows* chunk_rows = nullptr);
  void Execute(UnitWorld& unit, int node, const NodeAction& action, const Rows* chunk_rows);
  void LogAt(UnitWorld& unit, int node, const LogRecord& record);
  void Coordinate(UnitWorld& unit, int coordinator, const CoordinatorEvent& event);
  void Send(UnitWorld& unit, Message message);

  std::optional<std::string> ViolationOf(const UnitWorld& unit) const;

  const ModelConfig config_;
  std::vector<Message> messages_;
  std::map<std::string, std::uint16_t> message_ids_;
};

}  // namespace embla::model
