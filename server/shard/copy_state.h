// A node's record of its copy of a data_parallel table, beside the rows and their place in the
// order of updates (ReplicaPosition). docs/replication.md.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/ids.h"
#include "core/base/random.h"

namespace embla {

enum class CopyRole : std::uint8_t {
  kFollows,   // Another node orders the updates.
  kIncoming,  // This node is to, by the plan: it waits for a copy that has all it must have.
  kLeads,     // This node does.
  kOutgoing,  // Another node is to, by the plan, and has not been heard of as the primary yet.
};

// Shared by the snapshots of a node's tables.
// Thread safety: role, leads, serves, has_all, CheckServes, life and NoteWritten may be called from
// any thread, everything else on the table's lead device.
class CopyState {
 public:
  // For a new table, or a process that knows nothing of its copy: a primary leads, and any
  // other copy waits to hear from its primary.
  explicit CopyState(bool is_primary)
      : role_(is_primary ? CopyRole::kLeads : CopyRole::kFollows), is_counted_(is_primary) {
    if (is_primary) confirmed_ = written_ = life_.load();
  }

  CopyRole role() const { return role_; }
  bool leads() const { return role_ == CopyRole::kLeads; }
  // Whether lookups are answered: the primary waits for this copy before it acknowledges anything,
  // and has said so to the process that has these rows.
  bool serves() const { return confirmed_ == life_; }
  // Whether it has every acknowledged update, and may lead: also where the process has begun since
  // its primary said so. The next process knows as much.
  bool has_all() const { return is_counted_ && written_ == life_; }
  // The same, but for the log: the record of it lies there, and may not be synced yet.
  bool is_counted() const { return is_counted_; }
  // Unavailable: other copies do.
  absl::Status CheckServes() const {
    if (serves()) return absl::OkStatus();
    return absl::UnavailableError("the copy of the table on this node is on its way; ask another");
  }
  std::uint64_t life() const { return life_; }

  // The plan says who is the primary; of this node: since which plan.
  void TakeRole(bool is_primary, PlanVersion primary_since) {
    primary_since_ = primary_since;
    if (is_primary && role_ != CopyRole::kLeads) role_ = CopyRole::kIncoming;
    if (!is_primary && role_ == CopyRole::kLeads) role_ = CopyRole::kOutgoing;
    if (!is_primary && role_ == CopyRole::kIncoming) role_ = CopyRole::kFollows;
  }
  // Whether it leads from now on: it is to, and has every acknowledged update.
  bool Lead() {
    const bool begins = role_ == CopyRole::kIncoming && is_counted_;
    if (begins) role_ = CopyRole::kLeads;
    if (!leads()) return false;
    // The node may have heard of a later primary before the plan that names it, and follows that
    // primary once the plan is installed.
    term_ = primary_since_;
    confirmed_ = life_.load();
    return begins;
  }

  // Takes note of a message from the primary of `term`. FailedPrecondition, Unavailable: the copy
  // must not follow it.
  absl::Status Follow(PlanVersion term) {
    if (role_ == CopyRole::kLeads) {
      return absl::FailedPreconditionError("the table has its primary copy here");
    }
    if (term < term_ || (role_ == CopyRole::kOutgoing && term == term_)) {
      return absl::UnavailableError(absl::StrCat("the sender is the primary since plan ",
                                                 ToInt(term), ", this copy has heard of one since ",
                                                 ToInt(term_)));
    }
    if (role_ == CopyRole::kOutgoing) role_ = CopyRole::kFollows;
    term_ = term;
    return absl::OkStatus();
  }
  // The rows are not those of any moment, until a snapshot is complete and confirmed.
  void BeginLife() {
    is_counted_ = false;
    life_ = RandomId64();
  }
  // Returns whether this is new. A confirmation of an earlier life is ignored.
  bool Confirm(std::uint64_t life) {
    if (life != life_ || (is_counted_ && serves())) return false;
    is_counted_ = true;
    confirmed_ = life;
    return true;
  }
  // Repeats a confirmation from the journal. The copy counts as complete, but it serves no lookups
  // until its primary confirms it again: updates since that confirmation may be missing.
  void RepeatConfirmed() {
    is_counted_ = true;
    written_ = life_.load();
  }
  // The log has a record that `life` was confirmed.
  void NoteWritten(std::uint64_t life) { written_ = life; }

 private:
  std::atomic<CopyRole> role_;
  std::atomic<std::uint64_t> life_{RandomId64()};
  std::atomic<std::uint64_t> confirmed_{0};  // The life that serves.
  std::atomic<std::uint64_t> written_{0};    // The life that is known to be confirmed for ever.
  std::atomic<bool> is_counted_;             // True: the copy has every acknowledged update.
  PlanVersion primary_since_{};
  PlanVersion term_{};  // Term of the newest primary that this copy has heard of, itself included.
};

}  // namespace embla
