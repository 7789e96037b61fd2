// Keeps the sessions, which of them are closed, and which trainer each belongs to, in the store
// (session_records.h) and in memory.
//
// Nodes hear of closed sessions as news: what was closed, and what was settled, since the news
// before. Each has a number, which begins with that of the coordinator's process, so that no word
// of a node about another process's news counts. The sessions of some news are settled when every
// node has said its number, or a later one. The store does not keep what is settled: it is found
// out again after a restart.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/coordinator/session_records.h"
#include "server/migration/session_set.h"
#include "server/state_store/state_store.h"

namespace embla {

// News for nodes, in order.
struct SessionNews {
  std::uint64_t number = 0;
  ClosedSessions closed;  // More of both, or all of them for a node that has just come.
};

// Thread safety: none.
class SessionRegistry {
 public:
  // `boot` is this process's number, random and not 0.
  // DataLoss: what is in the store is none. `store` is not owned and outlives this object.
  static absl::StatusOr<SessionRegistry> Load(StateStore& store, std::uint32_t boot);

  // A session that was never given before. Errors: those of the store.
  absl::StatusOr<SessionId> Next();
  // The answer is the store's, which may have gone back in time.
  bool WasGiven(SessionId session) const;

  // Closes those that are not closed yet, in one commit. Errors: those of the store; nothing has
  // changed. Requires: they lie in at most kBlocksAtOnceMax blocks.
  static constexpr std::size_t kBlocksAtOnceMax = 64;
  absl::Status Close(std::span<const SessionId> sessions);
  // Takes in sessions that others know to be closed. Errors: those of the store; some may be closed
  // then.
  absl::Status Unite(const SessionSet& closed);
  // Closes some sessions of earlier processes that are not closed, but for those that `is_kept`
  // says. False: there were none.
  absl::StatusOr<bool> CloseSomeEarlier(const std::function<bool(SessionId)>& is_kept);

  // `latest` is the trainer's from now on. Requires: the session before is closed.
  // Errors: those of the store; nothing has changed.
  absl::Status SetLatestOf(const std::string& trainer, const TrainerSession& latest);
  // 0 and 0: the trainer has none that is not over.
  TrainerSession LatestOf(const std::string& trainer) const;
  // The trainer whose latest session it is; empty: no trainer's.
  std::string TrainerOf(SessionId session) const;
  // Deletes some of what is of no use any more: trainers whose latest sessions have settled, and
  // blocks of processes whose sessions are all closed. Errors: those of the store.
  absl::Status TidySome();

  // News that nodes have not been told yet.
  bool has_news() const { return !fresh_.refused.empty() || !fresh_.settled.empty(); }
  SessionNews TakeNews();
  // Most news that wait to be taken in by all nodes. Beyond it the oldest two become one: their
  // sessions are settled together, when the nodes have said the later number.
  static constexpr std::size_t kNewsWaitingMax = 1024;
  std::size_t news_waiting() const { return told_.size(); }
  // For a node that has just come, and hears of all later news.
  SessionNews all() const { return {number_, closed_}; }
  // Every node that counts has taken the news up to `number` in; none: there is no such node.
  void Settle(std::optional<std::uint64_t> number);

  // Whether `number` is of news of this process.
  bool IsOwnNews(std::uint64_t number) const { return number >> 32 == boot_ && number <= number_; }

  bool IsClosed(SessionId session) const { return closed_.refused.Has(session); }
  bool IsSettled(SessionId session) const { return closed_.settled.Has(session); }
  // The number of the news that says that `session`, which is closed, is so. 0: it has settled.
  std::uint64_t NewsOf(SessionId session) const;
  const ClosedSessions& closed() const { return closed_; }

 private:
  struct Boot {
    BootRecord record;
    std::uint64_t closed = 0;  // Number of closed sessions below `until`.
  };
  struct Trainer {
    TrainerSession latest;
    Revision revision{};
  };

  SessionRegistry(StateStore& store, std::uint32_t boot)
      : store_(&store), boot_(boot), number_(std::uint64_t{boot} << 32) {}

  absl::Status LoadBoots(std::vector<SessionSet::Range>& closed);
  absl::Status LoadBlocks(std::vector<SessionSet::Range>& closed);
  absl::Status LoadTrainers();
  // The effect of one commit of closings: blocks as they will be, and how many more of each
  // process.
  struct Closing {
    std::vector<SessionId> sessions;
    std::map<SessionBlock, SessionBits> blocks;
    std::map<std::uint32_t, std::uint64_t> more;
  };
  Closing ClosingOf(std::span<const SessionId> sessions) const;
  void CloseInMemory(const Closing& closing);
  // Whether all that an earlier process can have given will be closed with `more` of them.
  bool Ends(std::uint32_t boot, std::uint64_t more) const;
  std::vector<StateWrite> WritesOf(const Closing& closing) const;
  SessionBits BitsOf(SessionBlock block) const;
  // Their records are not needed any more.
  void LeaveBlocksOf(std::uint32_t boot);

  StateStore* store_;  // Not owned; outlives this object.
  std::uint32_t boot_;
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, Boot> boots_;  // Boots that the store knows, and this one.
  ClosedSessions closed_;
  std::map<std::string, Trainer> trainers_;
  std::map<SessionId, std::string> trainer_of_;  // By the latest session.
  std::set<SessionId> ending_;                   // Closed sessions among them.
  std::deque<SessionBlock> left_blocks_;         // To be deleted.

  std::uint64_t number_;  // Number of the last news.
  ClosedSessions fresh_;  // For the next.
  // By the news that told it, oldest first: what waits to be settled.
  std::deque<std::pair<std::uint64_t, SessionSet>> told_;
};

}  // namespace embla
