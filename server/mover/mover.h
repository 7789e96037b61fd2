// The executor of the protocol of moves (server/migration) on a node: hears the coordinator's
// orders and the other ends of moves, runs each unit's steps on its table's lead device, and
// carries their actions out.
//
//    orders, peers, ticks ──► mover's thread ──RunInOrder──► lead device: UnitTracker (StepNode)
//                                  ▲                              │ actions
//                                  └────────── task queue ◄───────┘
//
// Actions of a unit are carried out one after another, each when the one before is done: a control
// record is durable, rows are staged, before what follows is told to anybody. Nothing here waits:
// whatever takes time calls back through the queue.
//
// Rows are staged before the protocol hears of a chunk, so that what it claims to hold has passed
// its checks. docs/migration.md is the protocol; mover_simulation_test.cc drives two movers through
// a network that loses, repeats and reorders.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "server/migration/move_orders.h"
#include "server/migration/unit_host.h"
#include "server/mover/chunk_sender.h"
#include "server/mover/move_log.h"
#include "server/mover/move_transport.h"
#include "server/mover/mover_metrics.h"
#include "server/mover/moving_unit.h"
#include "server/mover/restored_unit.h"
#include "server/mover/task_queue.h"

namespace embla {

struct MoverOptions {
  ChunkSenderOptions sender;
  std::uint32_t credit_chunks = 8;  // Chunks of one unit on their way to this node.
  // A unit is frozen when at most this many chunks are behind, or each has been sent so often: what
  // is behind is sent during the freeze.
  std::uint32_t behind_max = 2;
  std::uint32_t rounds_max = 4;
  absl::Duration resend_after = absl::Seconds(1);  // Without any progress.
  // A freeze that lasts longer ends; the unit is frozen again at the next try.
  absl::Duration freeze_deadline = absl::Milliseconds(500);
  absl::Duration progress_interval = absl::Seconds(1);
  absl::Duration fold_interval = absl::Seconds(5);  // Between two rounds of a table's fold.
  // A table whose units had to be taken apart again is left alone for so long.
  absl::Duration fold_pause = absl::Hours(1);
  std::size_t peer_tasks_max = 4096;  // Messages of peers that wait for the mover's thread.
  absl::Duration image_wait_max = absl::Milliseconds(500);  // Steps are held back no longer.
};

// The parts that a mover works with; not owned, all outlive the mover and every task of the queue.
struct MoverParts {
  UnitHost& host;
  MoveTransport& transport;
  MoveControl& control;
  MoveLog& log;
  const Clock& clock;
};

// Thread safety: OnOrders and OnMessage may be called from any thread; Tick and the queue's tasks
// belong to one, the mover's (MoverThread).
class Mover {
 public:
  // `metrics` may be null, else it outlives the mover.
  Mover(const MoverOptions& options, const MoverParts& parts, Metrics* metrics,
        std::shared_ptr<TaskQueue> queue);
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Resumes where the process that wrote the log ended. When it returns, the gates of all units are
  // on their way to the tables; orders and messages wait until the units are known. Requires:
  // nothing was asked of the mover before, and no request of the tables.
  void Restore(RestoredNode restored);
  // Takes orders of the coordinator; `self` is this node's id.
  void OnOrders(NodeId self, std::vector<UnitOrder> orders);
  // The node has installed `plan`, which this process got from the coordinator; `addresses` are
  // those of its nodes, host:port.
  void OnPlan(PlanVersion plan, std::map<NodeId, std::string> addresses);
  // The node has installed a plan with these tables: units of others are forgotten, whatever is on
  // its way of them. Table ids are never given twice.
  void KeepTables(std::set<TableId> tables);
  // Takes a message of the other end. ResourceExhausted: too much waits; the message is dropped.
  absl::Status OnMessage(PeerMessage message);

  // mover_images.cc. Tells what the log yields of each unit; to be asked where all devices stand
  // still.
  using LoggedUnits = std::function<std::vector<RestoredUnit>()>;
  // Runs `work` on the mover's thread, which so begins no step, at a moment at which the log says
  // of every unit what is here: no record is missing, and no rows are changing places. Steps that
  // would begin meanwhile are held back. False: no such moment has come for image_wait_max, as log
  // or devices are stuck, somebody else waits for one, or the mover has ended. Waits for it. Either
  // way, chunks that were staged before the call are in the log when it returns.
  bool WhileLogged(const std::function<void(const LoggedUnits&)>& work);
  // The same without waiting: `work` gets null for false, and may be dropped when the mover ends.
  using WhenLoggedWork = std::function<void(const LoggedUnits*)>;
  void WhenLogged(WhenLoggedWork work);

  // The units that the node knows of and does not own. Waits for the mover's thread, which runs,
  // and for the devices.
  std::vector<UnitStandings> UnitsElsewhere();

  // Repeats what may have been lost, if it is time to, and sends what the rate allows by now.
  // Returns how soon it is to be called again, at the latest.
  absl::Duration Tick();

 private:
  void HandleOrder(const UnitOrder& order);
  void HandleMessage(PeerMessage message);
  // Null: the unit never took part in a move here, or its table was dropped meanwhile.
  MovingUnit* Find(const UnitId& id);
  // Null: the order begins nothing, or the unit is not known here (yet).
  MovingUnit* FindOrBegin(const UnitOrder& order);
  MovingUnit* Begin(const UnitOrder& order, std::uint32_t chunks);
  std::shared_ptr<UnitTracker> MakeTracker(NodeId self, std::uint32_t chunks) const;
  // Gives the unit windows of its own, where it is one of the table's rest so far.
  void Adopt(MovingUnit& unit);
  void ReportIfSettled(const MovingUnit& unit, MoveId move);
  void DropAside(TableId table);
  bool IsRepeatedTooSoon(const MovingUnit& unit, const UnitOrder& order) const;

  // mover_folds.cc: units at rest, whose records join those of their tables' rest.
  void FoldUnits(absl::Time now);
  // A unit that has left, once a plan says so.
  void LetGateGo(MovingUnit& unit);
  // The order that said which plan has the unit may be lost.
  void AskForRecord(const MovingUnit& unit);
  void TakeApartWhatAsks(absl::Time now);
  void OnFolded(const UnitId& id, bool is_folded);
  void CountGates();
  // mover_images.cc: whoever waits for the moment of an image.
  struct ImageWait {
    WhenLoggedWork work;
    absl::Time until;
    bool is_taken = false;
    std::map<UnitId, std::function<void()>> done = {};  // Work whose end waits for it to be over;
    std::vector<std::function<void()>> held = {};       // then events do.
  };
  static void NoteStarted(MovingUnit& unit, const UnitWork& work);
  // Whether the end of the unit's work waits: nothing that is owed is behind it.
  bool HoldsBack(const MovingUnit& unit) const;
  void LetGoOn(const MovingUnit& unit);
  void TakeImageIfLogged();
  void GiveUpImage(absl::Time now);
  void EndImageWait();
  // Work of it runs on lead devices, whose tasks may outlive the mover.
  struct FoldSteps {
    MoverParts parts;
    std::shared_ptr<TaskQueue> queue;
    Mover* mover;  // Touched by the queue's tasks only.

    void NoteOrJoin(const UnitId& id, UnitTracker& tracker, PlanVersion plan) const;
    // Gives a unit that is folded back a record of its own again; false: the log has no room.
    bool TakeApart(const UnitId& id, const std::shared_ptr<UnitTracker>& tracker) const;
  };
  FoldSteps fold_steps() { return {parts_, queue_, this}; }

  // The tracker takes `event` in its turn; OnStepped follows.
  void Deliver(MovingUnit& unit, NodeEvent event);
  // The same, also while an image is waited for.
  void DeliverNow(MovingUnit& unit, NodeEvent event);
  void DeliverPull(MovingUnit& unit, NodeId from, Pull pull);
  void DeliverRows(MovingUnit& unit, PeerMessage message);
  void OnStepped(const UnitId& id, UnitTracker::Stepped stepped);
  void NoteStatus(MovingUnit& unit, const UnitStatus& status);
  void TickUnit(MovingUnit& unit, absl::Time now);

  // mover_actions.cc. Each Do starts one piece of work; it is done when the unit is not busy.
  void RunWork(MovingUnit& unit);
  void Do(MovingUnit& unit, NodeAction& action);
  void Do(MovingUnit& unit, StageRows& stage);
  void OnStaged(MovingUnit& unit, const Chunk& chunk, const SharedBuffer& rows,
                const absl::Status& status);
  void Do(MovingUnit& unit, LogAction& action);
  void Do(MovingUnit& unit, WriteRows&) { Finish(unit); }
  void Do(MovingUnit& unit, SendPull& action);
  void Do(MovingUnit& unit, SendChunk& action);
  void Do(MovingUnit& unit, SendFinal& action);
  void Do(MovingUnit& unit, SendReport& action);
  void Do(MovingUnit& unit, SendHolds& action);
  void Do(MovingUnit& unit, SendRelease& action);
  void Do(MovingUnit& unit, SendCovered& action);
  void Do(MovingUnit& unit, ReserveImport& action);
  void Do(MovingUnit& unit, StageChunk&) { Finish(unit); }  // StageRows was before it.
  void Do(MovingUnit& unit, ResetStaged& action);
  void Do(MovingUnit& unit, InstallStaged&);
  void Do(MovingUnit& unit, RelocateRows& action);
  void Do(MovingUnit& unit, DiscardStaged&);
  void Do(MovingUnit& unit, TrimRows&);
  void Finish(MovingUnit& unit) { unit.is_busy = unit.is_moving_rows = false; }
  // The unit's next work is `action` once more, at the next tick.
  static void TryAgain(MovingUnit& unit, NodeAction action);
  void OnNotLogged(MovingUnit& unit, LogAction action, const absl::Status& status);
  void OnSynced(const UnitId& id, const LogRecord& record, const absl::Status& status);
  void OnRelocated(const UnitId& id, MoveId move, const absl::Status& status);
  // A callback for the host: `then` runs on the mover's thread, then the unit's next work.
  using AfterHost = std::function<void(MovingUnit&, const absl::Status&)>;
  HostDone WhenDone(MovingUnit& unit, const char* what, AfterHost then);
  void OnHostDone(MovingUnit& unit, const AfterHost& then, const absl::Status& status);
  void SendTo(NodeId node, const MovingUnit& unit, PeerMessage message);
  void Report(const MovingUnit& unit, UnitReport::Kind kind, MoveId move, std::string message);
  void OnSent(const SentChunk& sent);
  void OnLost(const UnitId& id, const absl::Status& why);
  void OnLinkLost(MovingUnit& unit);

  const MoverOptions options_;
  const MoverParts parts_;
  const std::shared_ptr<TaskQueue> queue_;
  MoverMetrics metrics_;
  ChunkSender sender_;

  std::size_t steps_open_ = 0;  // Steps that were delivered and not heard of.
  std::optional<ImageWait> image_;
  absl::Time units_tick_at_ = absl::InfinitePast();
  PlanVersion plan_{};  // Version of the last OnPlan; 0: none so far.
  absl::Time fold_at_ = absl::InfinitePast();
  int asks_left_ = 0;                      // In the round of folds that runs.
  std::map<TableId, std::size_t> folded_;  // Units, by table; none that has none.
  // Earliest next fold of tables that were taken apart.
  std::map<TableId, absl::Time> fold_not_before_;
  NodeId self_{};  // 0: no order has come.
  std::uint64_t log_process_ = 0;
  // Fewer only when tables are dropped: a unit that came to rest, or has left, keeps its min_move,
  // without which an old record would bring it back.
  std::map<UnitId, std::unique_ptr<MovingUnit>> units_;
  std::map<NodeId, std::string> addresses_;  // From plans; a node that has left keeps its own.
  // The last pull of each unit that came before the order that opened its move, or the plan with
  // the node that it is from.
  std::map<UnitId, PeerMessage> early_pulls_;
};

}  // namespace embla
