// The steps of a call; Call decides when and how often each of them runs. A call's steps are never
// run by two threads at once, but by different threads.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "client/route/lookup_route.h"
#include "client/route/update_route.h"
#include "client/step_rank.h"
#include "client/transport/node_channel.h"
#include "client/update_window.h"
#include "core/base/trace_context.h"

namespace embla::client {

// One node's share of a call, by number.
struct ShareTarget {
  std::size_t share = 0;
  NodeId node{};
  PlanVersion plan_version{};  // The plan that routed the request,
  std::uint64_t hints = 0;     // and hints: Routes::hints() then.
};

// Rows of a share that its node left out as their unit is on the move, or units of its claim that
// did not step; or a lookup's share, some units of which have moved.
struct Postponed {
  ShareTarget target;          // A share of these alone.
  absl::Status reason;         // For messages.
  bool moved = false;          // To another node, else it is tried again in `wait`.
  PlanVersion plan_version{};  // Moved, and the node does not know where to: this may say it.
  absl::Duration wait{};
};

class CallWork {
 public:
  virtual ~CallWork() = default;

  // Checks the caller's arguments. May be called again, under a newer plan, after NotFound.
  virtual absl::Status Prepare(const Routes& routes) = 0;
  // Calls `admitted` when the call may start, at once or later and on any thread.
  virtual void Enter(absl::Time deadline, std::function<void(absl::Status)> admitted) = 0;
  // All shares of the call.
  virtual absl::StatusOr<std::vector<ShareTarget>> Split(const Routes& routes, NodeId avoid) = 0;
  // Returns the shares that replace `target` under `routes`: itself to send it again, or new ones.
  virtual absl::StatusOr<std::vector<ShareTarget>> Retarget(const ShareTarget& target,
                                                            const Routes& routes, NodeId avoid) = 0;
  // Whether another node could do some of it, of a copy of its own.
  virtual bool HasOtherCopy(const ShareTarget& target, const Routes& routes) const = 0;
  // Whether it is a contribution to a synchronous step, which waits for those of other clients.
  virtual bool IsContribution(const ShareTarget& target) const = 0;
  // `trace` is the span of the message. The result as of NodeChannel::Lookup.
  virtual SocketPtr Send(const ShareTarget& target, NodeChannel& channel, absl::Time deadline,
                         const TraceContext& trace, NodeChannel::Done done) = 0;
  // Returns what the node of a share says about units that have moved away.
  virtual std::vector<UnitHint> HintsIn(const ShareTarget& target, const NodeReply& reply,
                                        const Routes& routes) const = 0;
  // Returns the remainder of an answered share, to be sent again.
  virtual std::vector<Postponed> TakePostponed(const ShareTarget& target, const NodeReply& reply,
                                               const Routes& routes) = 0;
  // The first table of the share, for messages.
  virtual TableId TableOf(const ShareTarget& target) const = 0;
  virtual bool changes_rows() const = 0;
  // All shares in `answered` were answered, and together they are the whole call.
  virtual void Merge(std::span<const ShareTarget> answered) = 0;
  // The call is over, well or not. Nothing of it is in flight.
  virtual void Leave() = 0;
};

class LookupWork final : public CallWork {
 public:
  // `pool` is not owned; outlives this object.
  LookupWork(std::span<const FeatureLookup> features, const LookupRoute::Options& options,
             BufferPool& pool)
      : features_(features.begin(), features.end()), options_(options), pool_(pool) {}

  absl::Status Prepare(const Routes& routes) override;
  void Enter(absl::Time deadline, std::function<void(absl::Status)> admitted) override;
  absl::StatusOr<std::vector<ShareTarget>> Split(const Routes& routes, NodeId avoid) override;
  absl::StatusOr<std::vector<ShareTarget>> Retarget(const ShareTarget& target, const Routes& routes,
                                                    NodeId avoid) override;
  bool HasOtherCopy(const ShareTarget& target, const Routes& routes) const override;
  bool IsContribution(const ShareTarget&) const override { return false; }
  SocketPtr Send(const ShareTarget& target, NodeChannel& channel, absl::Time deadline,
                 const TraceContext& trace, NodeChannel::Done done) override;
  std::vector<UnitHint> HintsIn(const ShareTarget& target, const NodeReply& reply,
                                const Routes& routes) const override;
  std::vector<Postponed> TakePostponed(const ShareTarget& target, const NodeReply& reply,
                                       const Routes& routes) override;
  TableId TableOf(const ShareTarget& target) const override;
  bool changes_rows() const override { return false; }
  void Merge(std::span<const ShareTarget> answered) override;
  void Leave() override {}

 private:
  const std::vector<FeatureLookup> features_;
  const LookupRoute::Options options_;
  BufferPool& pool_;
  std::optional<LookupRoute> route_;
  std::vector<LookupShare> shares_;
};

class UpdateWork final : public CallWork {
 public:
  struct Options {
    SessionId session{};
    SessionProof proof{};
    std::uint64_t step = 0;  // 0: the update's own number; of contributions, as it is.
  };
  // Checks and combines what the call is about.
  using MakeRoute = std::function<absl::StatusOr<UpdateRoute>(const Routes& routes)>;

  // `window` and `rank` are not owned; they outlive this object.
  UpdateWork(MakeRoute make_route, const Options& options, UpdateWindow& window, StepRank& rank)
      : make_route_(std::move(make_route)), options_(options), window_(window), rank_(rank) {}

  absl::Status Prepare(const Routes& routes) override;
  void Enter(absl::Time deadline, std::function<void(absl::Status)> admitted) override;
  absl::StatusOr<std::vector<ShareTarget>> Split(const Routes& routes, NodeId avoid) override;
  absl::StatusOr<std::vector<ShareTarget>> Retarget(const ShareTarget& target, const Routes& routes,
                                                    NodeId avoid) override;
  bool HasOtherCopy(const ShareTarget&, const Routes&) const override { return false; }
  bool IsContribution(const ShareTarget& target) const override {
    return shares_[target.share].claim.has_value();
  }
  SocketPtr Send(const ShareTarget& target, NodeChannel& channel, absl::Time deadline,
                 const TraceContext& trace, NodeChannel::Done done) override;
  std::vector<UnitHint> HintsIn(const ShareTarget& target, const NodeReply& reply,
                                const Routes& routes) const override;
  std::vector<Postponed> TakePostponed(const ShareTarget& target, const NodeReply& reply,
                                       const Routes& routes) override;
  TableId TableOf(const ShareTarget& target) const override;
  bool changes_rows() const override { return true; }
  void Merge(std::span<const ShareTarget> answered) override {}
  void Leave() override;

 private:
  // A share of the rows in `refused`, unless there are none.
  void Postpone(const ShareTarget& target, std::span<const RefusedUnit> refused,
                const Routes& routes, Postponed postponed, std::vector<Postponed>& all);
  // In a contribution, what is refused for one reason stays one request, as long as one node has
  // it: so a claim has all units of a node that did not move, or none of them.
  std::vector<Postponed> TakeRefusedClaims(const ShareTarget& target,
                                           std::span<const RefusedClaim> refused,
                                           const Routes& routes);

  const MakeRoute make_route_;
  const Options options_;
  UpdateWindow& window_;
  StepRank& rank_;
  std::optional<UpdateRoute> route_;
  std::vector<UpdateShare> shares_;
  PlanVersion routed_since_{};  // The oldest that any request was routed by.
  UpdateSeq seq_{};             // 0: not entered.
};

}  // namespace embla::client
