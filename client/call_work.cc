#include "client/call_work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::client {
namespace {

// Takes `shares` in and says where they go.
template <typename Share>
std::vector<ShareTarget> AddShares(std::vector<Share> shares, std::vector<Share>& all) {
  std::vector<ShareTarget> targets;
  targets.reserve(shares.size());
  for (Share& share : shares) {
    targets.push_back({all.size(), share.node, share.plan_version, share.hints});
    all.push_back(std::move(share));
  }
  return targets;
}

bool IsRoutedBy(const Routes& routes, const ShareTarget& target) {
  return target.plan_version == routes.plan().version() && target.hints == routes.hints();
}

// Returns what `refused` says, in an answer to a part of a request that is of `table`.
UnitHint HintOf(const RefusedUnit& refused, TableId table) {
  return {.table = table,
          .row_begin = refused.row_begin,
          .row_end = refused.row_end,
          .column_begin = refused.column_begin,
          .column_end = refused.column_end,
          .owner = refused.owner,
          .epoch = refused.epoch};
}

bool IsHint(const RefusedUnit& refused) {
  return refused.reason == RefusedUnit::Reason::kMoved && refused.owner != NodeId{};
}

absl::Status AreOnTheMove(const RefusedUnit& refused) {
  const bool have_moved = refused.reason == RefusedUnit::Reason::kMoved;
  return absl::UnavailableError(
      absl::StrCat("rows [", refused.row_begin, ", ", refused.row_end, ") ",
                   have_moved ? "have moved to another node" : "are being handed over"));
}

// Least wait after a node answered that rows must be sent again later.
constexpr absl::Duration kPostponedMin = absl::Milliseconds(1);
constexpr absl::Duration kPostponedMax = absl::Seconds(1);

absl::Duration WaitOf(std::uint32_t retry_after_ms) {
  return std::clamp(absl::Milliseconds(retry_after_ms), kPostponedMin, kPostponedMax);
}

std::string_view WhatHappensTo(RefusedClaim::Reason reason) {
  switch (reason) {
    case RefusedClaim::Reason::kFrozen:
      return "are being handed over";
    case RefusedClaim::Reason::kMoved:
      return "have moved to another node";
    case RefusedClaim::Reason::kAgain:
      return "go apart from others";
  }
  return "";
}

}  // namespace

absl::Status LookupWork::Prepare(const Routes& routes) {
  EMBLA_ASSIGN_OR_RETURN(route_, LookupRoute::Create(features_, routes, options_, pool_));
  return absl::OkStatus();
}

void LookupWork::Enter(absl::Time, std::function<void(absl::Status)> admitted) {
  admitted(absl::OkStatus());
}

absl::StatusOr<std::vector<ShareTarget>> LookupWork::Split(const Routes& routes, NodeId avoid) {
  EMBLA_ASSIGN_OR_RETURN(std::vector<LookupShare> shares, route_->Split(routes, avoid));
  return AddShares(std::move(shares), shares_);
}

absl::StatusOr<std::vector<ShareTarget>> LookupWork::Retarget(const ShareTarget& target,
                                                              const Routes& routes, NodeId avoid) {
  const LookupShare& share = shares_[target.share];
  const bool other_copy = avoid == target.node && HasOtherCopy(target, routes);
  if (IsRoutedBy(routes, target) && !other_copy) return std::vector{target};
  EMBLA_ASSIGN_OR_RETURN(std::vector<LookupShare> shares, route_->Resplit(share, routes, avoid));
  return AddShares(std::move(shares), shares_);
}

bool LookupWork::HasOtherCopy(const ShareTarget& target, const Routes& routes) const {
  const LookupShare& share = shares_[target.share];
  return std::any_of(share.items.begin(), share.items.end(),
                     [&](const auto& item) { return route_->HasCopies(item, routes); });
}

SocketPtr LookupWork::Send(const ShareTarget& target, NodeChannel& channel, absl::Time deadline,
                           const TraceContext& trace, NodeChannel::Done done) {
  NodeLookup request = route_->Build(shares_[target.share]);
  request.batch.trace = trace;
  return channel.Lookup(std::move(request), deadline, std::move(done));
}

std::vector<UnitHint> LookupWork::HintsIn(const ShareTarget& target, const NodeReply& reply,
                                          const Routes&) const {
  const std::vector<LookupItem>& items = shares_[target.share].items;
  std::vector<UnitHint> hints;
  for (const RefusedUnit& refused : reply.refused) {
    if (!IsHint(refused) || refused.part >= items.size()) continue;
    hints.push_back(HintOf(refused, route_->TableOf(items[refused.part])));
  }
  return hints;
}

std::vector<Postponed> LookupWork::TakePostponed(const ShareTarget& target, const NodeReply& reply,
                                                 const Routes&) {
  if (reply.refused.empty()) return {};
  Postponed all{.target = target, .reason = AreOnTheMove(reply.refused.front()), .moved = true};
  for (const RefusedUnit& refused : reply.refused) {
    if (!IsHint(refused)) all.plan_version = std::max(all.plan_version, refused.plan_version);
  }
  return {all};
}

TableId LookupWork::TableOf(const ShareTarget& target) const {
  return route_->TableOf(shares_[target.share].items.front());
}

void LookupWork::Merge(std::span<const ShareTarget> answered) {
  std::vector<const LookupShare*> shares;
  for (const ShareTarget& target : answered) shares.push_back(&shares_[target.share]);
  route_->Merge(shares);
}

absl::Status UpdateWork::Prepare(const Routes& routes) {
  EMBLA_ASSIGN_OR_RETURN(route_, make_route_(routes));
  return absl::OkStatus();
}

void UpdateWork::Enter(absl::Time deadline, std::function<void(absl::Status)> admitted) {
  window_.Enter(deadline, [this, admitted = std::move(admitted)](absl::StatusOr<UpdateSeq> seq) {
    if (seq.ok()) seq_ = *seq;
    admitted(seq.status());
  });
}

absl::StatusOr<std::vector<ShareTarget>> UpdateWork::Split(const Routes& routes, NodeId) {
  routed_since_ = routes.routed_since();
  EMBLA_ASSIGN_OR_RETURN(std::vector<UpdateShare> shares, route_->Split(routes));
  return AddShares(std::move(shares), shares_);
}

absl::StatusOr<std::vector<ShareTarget>> UpdateWork::Retarget(const ShareTarget& target,
                                                              const Routes& routes, NodeId) {
  if (IsRoutedBy(routes, target)) return std::vector{target};
  routed_since_ = std::min(routed_since_, routes.routed_since());
  EMBLA_ASSIGN_OR_RETURN(std::vector<UpdateShare> shares,
                         route_->Resplit(shares_[target.share], routes));
  return AddShares(std::move(shares), shares_);
}

SocketPtr UpdateWork::Send(const ShareTarget& target, NodeChannel& channel, absl::Time deadline,
                           const TraceContext& trace, NodeChannel::Done done) {
  UpdateHeader header{.routed_since = routed_since_,
                      .session = options_.session,
                      .proof = options_.proof,
                      .seq = seq_,
                      .first_incomplete = window_.first_incomplete(),
                      .step = options_.step == 0 ? ToInt(seq_) : options_.step};
  const UpdateShare& share = shares_[target.share];
  if (share.claim.has_value()) {
    header.step = options_.step;
    header.resumes = rank_.Resumes(route_->TableOf(share), options_.step);
  }
  NodeUpdate request = route_->Build(share, header);
  request.batch.trace = trace;
  return channel.Update(std::move(request), deadline, std::move(done));
}

std::vector<UnitHint> UpdateWork::HintsIn(const ShareTarget& target, const NodeReply& reply,
                                          const Routes& routes) const {
  const UpdateShare& share = shares_[target.share];
  std::vector<UnitHint> hints;
  for (const RefusedUnit& refused : reply.refused) {
    if (!IsHint(refused) || refused.part >= share.items.size()) continue;
    hints.push_back(HintOf(refused, route_->TableOf(share.items[refused.part])));
  }
  const TableRoute* const table = routes.Find(route_->TableOf(share));
  if (table == nullptr || table->step_units() == nullptr) return hints;
  for (const RefusedClaim& refused : reply.refused_claims) {
    if (refused.reason != RefusedClaim::Reason::kMoved || refused.owner == NodeId{}) continue;
    for (const StepUnits::CutRows& cut : table->step_units()->RowsOf(UnitSet(refused.units))) {
      for (const auto& [begin, end] : cut.rows) {
        hints.push_back({.table = table->spec().id,
                         .row_begin = begin,
                         .row_end = end,
                         .column_begin = cut.column_begin,
                         .column_end = cut.column_end,
                         .owner = refused.owner,
                         .epoch = refused.epoch});
      }
    }
  }
  return hints;
}

std::vector<Postponed> UpdateWork::TakePostponed(const ShareTarget& target, const NodeReply& reply,
                                                 const Routes& routes) {
  if (IsContribution(target)) return TakeRefusedClaims(target, reply.refused_claims, routes);
  std::vector<RefusedUnit> moved, busy;
  Postponed later, elsewhere;
  elsewhere.moved = true;
  for (const RefusedUnit& unit : reply.refused) {
    if (unit.reason == RefusedUnit::Reason::kMoved) {
      moved.push_back(unit);
      if (IsHint(unit)) continue;
      elsewhere.plan_version = std::max(elsewhere.plan_version, unit.plan_version);
    } else {
      busy.push_back(unit);
      later.wait = std::max(later.wait, WaitOf(unit.retry_after_ms));
    }
  }
  std::vector<Postponed> all;
  Postpone(target, busy, routes, std::move(later), all);
  Postpone(target, moved, routes, std::move(elsewhere), all);
  return all;
}

std::vector<Postponed> UpdateWork::TakeRefusedClaims(const ShareTarget& target,
                                                     std::span<const RefusedClaim> refused,
                                                     const Routes& routes) {
  std::vector<Postponed> all;
  for (const RefusedClaim::Reason reason :
       {RefusedClaim::Reason::kAgain, RefusedClaim::Reason::kFrozen,
        RefusedClaim::Reason::kMoved}) {
    UnitSet units;
    Postponed postponed;
    postponed.moved = reason == RefusedClaim::Reason::kMoved;
    for (const RefusedClaim& claim : refused) {
      if (claim.reason != reason) continue;
      units.Include(UnitSet(claim.units));
      if (claim.owner == NodeId{}) {
        postponed.plan_version = std::max(postponed.plan_version, claim.plan_version);
      }
      if (reason == RefusedClaim::Reason::kFrozen) {
        postponed.wait = std::max(postponed.wait, WaitOf(claim.retry_after_ms));
      }
    }
    UpdateShare share = route_->Within(units, shares_[target.share], routes);
    if (!share.claim.has_value()) continue;
    postponed.reason = absl::UnavailableError(
        absl::StrCat("units ", ToString(share.claim->units), " ", ToAbsl(WhatHappensTo(reason))));
    postponed.target = {shares_.size(), share.node, share.plan_version, share.hints};
    shares_.push_back(std::move(share));
    all.push_back(std::move(postponed));
  }
  return all;
}

void UpdateWork::Postpone(const ShareTarget& target, std::span<const RefusedUnit> refused,
                          const Routes& routes, Postponed postponed, std::vector<Postponed>& all) {
  if (refused.empty()) return;
  UpdateShare share = route_->Refused(shares_[target.share], refused, routes);
  if (share.items.empty()) return;
  postponed.target = {shares_.size(), share.node, share.plan_version, share.hints};
  postponed.reason = AreOnTheMove(refused.front());
  shares_.push_back(std::move(share));
  all.push_back(std::move(postponed));
}

TableId UpdateWork::TableOf(const ShareTarget& target) const {
  return route_->TableOf(shares_[target.share]);
}

void UpdateWork::Leave() {
  if (seq_ != UpdateSeq{}) window_.Leave(seq_);
}

}  // namespace embla::client
