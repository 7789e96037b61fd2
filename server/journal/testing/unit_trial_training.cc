// Trainers of a trial: updates, synchronous steps, averagings.
#include "server/journal/testing/unit_trial.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::testing {

UpdatePartData UnitTrial::PartOf(const Pending& update, std::uint32_t rank,
                                 const std::set<std::uint32_t>& units) const {
  UpdatePartData data;
  data.part.table = kTable;
  data.part.column_end = spec_.dim;
  data.part.clipped = true;
  std::vector<float> gradients;
  for (const auto& [id, row] : update.contributions[rank]) {
    if (!units.contains(UnitOf(id))) continue;
    data.ids.push_back(RowId{id});
    gradients.insert(gradients.end(), row.begin(), row.end());
  }
  data.gradients = EncodeRows(gradients, spec_.dim, DType::kFloat32);
  return data;
}

UpdateBatch UnitTrial::HeaderOf(const Pending& update, std::uint32_t rank) const {
  UpdateBatch header;
  header.session = SessionId{kSession + rank};
  header.seq = UpdateSeq{update.seq};
  header.first_incomplete = UpdateSeq{pending_.front().seq};
  header.step = update.step;
  return header;
}

std::vector<absl::StatusOr<UpdateResult>> UnitTrial::Contribute(
    ShardNode& node, const Pending& update, const std::set<std::uint32_t>& units) {
  using Result = absl::StatusOr<UpdateResult>;
  Mutex mu;
  std::vector<std::optional<Result>> results(kRanks);
  CondVar changed;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    UpdateBatch header = HeaderOf(update, rank);
    header.claim = StepClaim{.table = kTable, .rank = Rank{rank}, .resumes = false, .units = {}};
    for (const std::uint32_t unit : units)
      header.claim->units.Include(UnitSet({0, unit, unit + 1}));
    UpdateBatch request = Pack(header, {PartOf(update, rank, units)});
    node.Update(std::move(request), absl::InfiniteFuture(), [&, rank](Result result) {
      const MutexLock lock(mu);
      results[rank] = std::move(result);
      changed.NotifyAll();
    });
  }
  const MutexLock lock(mu);
  while (std::ranges::any_of(results, [](const auto& result) { return !result.has_value(); })) {
    changed.Wait(mu);
  }
  std::vector<Result> all;
  for (std::optional<Result>& result : results) all.push_back(*std::move(result));
  return all;
}

void UnitTrial::StepLeft(Pending& update) {
  std::map<std::size_t, std::set<std::uint32_t>> by_node;
  // Like other updates, so that those of a row stay in their order.
  const bool is_first = update.plan == 0;
  if (is_first) update.plan = known_plan_;
  for (const std::uint32_t unit : update.units) {
    const bool is_known = owners_by_plan_[update.plan][unit] == owners_[unit];
    if (!is_first || is_known) by_node[owners_[unit]].insert(unit);
  }
  for (const auto& [n, units] : by_node) {
    std::set<std::uint32_t> claimed = units;
    // Units that are named to be sent again are here: without the others they step.
    while (!claimed.empty()) {
      if (random_() % 4 == 0) Contribute(node(n), update, claimed);  // Answers lost.
      std::set<std::uint32_t> again;
      std::set<std::uint32_t> refused;
      for (const auto& result : Contribute(node(n), update, claimed)) {
        ASSERT_THAT(result, IsOk());
        for (const RefusedClaim& claim : result->refused_claims) {
          for (std::uint32_t unit = claim.units.begin; unit < claim.units.end; ++unit) {
            (claim.reason == RefusedClaim::Reason::kAgain ? again : refused).insert(unit);
          }
        }
      }
      for (const std::uint32_t unit : claimed) {
        if (!again.contains(unit) && !refused.contains(unit)) update.units.erase(unit);
      }
      claimed = std::move(again);
    }
  }
}

void UnitTrial::AddStep(Pending& update) {
  update.step = steps_++;
  for (std::uint32_t unit = 0; unit < spec_.row_granules; ++unit) update.units.insert(unit);
  std::vector<UpdatePartData> parts;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    auto& gradients = update.contributions.emplace_back();
    for (std::uint32_t n = random_() % 20; n > 0; --n) {
      std::vector<float>& row = gradients[RandomId()];
      row.clear();
      for (std::uint32_t c = 0; c < spec_.dim; ++c) row.push_back(RandomGradient());
    }
    parts.push_back(PartOf(update, rank, update.units));
  }
  UpdateBatch request = Pack(HeaderOf(update, 0), parts);
  const auto modelled = Await<UpdateResult>([&](UpdateDone done) {
    model_->Update(std::move(request), absl::InfiniteFuture(), std::move(done));
  });
  ASSERT_THAT(modelled, IsOk());
}

absl::StatusOr<UpdateResult> UnitTrial::Send(ShardNode& node, const Pending& update,
                                             const std::vector<std::int64_t>& ids) {
  UpdatePartData data;
  data.part.table = kTable;
  data.part.column_end = spec_.dim;
  data.part.replica_group = update.group;
  std::vector<float> gradients;
  for (const std::int64_t id : ids) {
    data.ids.push_back(RowId{id});
    const std::vector<float>& row = update.gradients.at(id);
    gradients.insert(gradients.end(), row.begin(), row.end());
  }
  if (update.is_images) {
    data.part.form = UpdatePart::Form::kImages;
    data.part.state_floats = StateFloats();
  }
  const auto row_floats =
      static_cast<std::uint32_t>(data.part.row_bytes(DType::kFloat32) / sizeof(float));
  data.gradients = EncodeRows(gradients, row_floats, DType::kFloat32);
  UpdateBatch header;
  header.session = SessionId{kSession + update.group};
  header.seq = UpdateSeq{update.seq};
  header.first_incomplete = UpdateSeq{
      std::ranges::find(pending_, update.group, &Pending::group)->seq};  // Itself, or before it.
  header.step = update.seq;
  if (update.names_plan) header.routed_since = PlanVersion{update.plan};
  UpdateBatch request = Pack(header, {data});
  return Await<UpdateResult>([&](UpdateDone done) {
    node.Update(std::move(request), absl::InfiniteFuture(), std::move(done));
  });
}

void UnitTrial::SendLeft(Pending& update) {
  const bool is_first = update.plan == 0;
  if (is_first) {
    update.plan = known_plan_;
    update.names_plan = random_() % 64 != 0;
  }
  std::map<std::size_t, std::vector<std::int64_t>> by_node;
  for (const auto& [id, gradient] : update.gradients) {
    const std::size_t owner = owners_[UnitOf(id)];
    if (is_first && owners_by_plan_[update.plan][UnitOf(id)] != owner) continue;
    by_node[owner].push_back(id);
  }
  for (const auto& [n, ids] : by_node) {
    if (random_() % 4 == 0) static_cast<void>(Send(node(n), update, ids));  // Answer lost.
    auto result = Send(node(n), update, ids);
    if (absl::IsFailedPrecondition(result.status())) {
      ASSERT_TRUE(host(n).AsksApart(kTable)) << result.status();
      while (!folded_[n].empty()) GateOf(n, folded_[n].begin()->first);
      ++counts_.taken_apart;
      ASSERT_FALSE(host(n).AsksApart(kTable));
      result = Send(node(n), update, ids);
    }
    ASSERT_THAT(result, IsOk());
    for (const std::int64_t id : ids) {
      const std::int64_t row = id_rows_->RowOf(RowId{id});
      const bool refused = std::any_of(
          result->refused.begin(), result->refused.end(),
          [row](const RefusedUnit& unit) { return unit.row_begin <= row && row < unit.row_end; });
      if (!refused) update.gradients.erase(id);
    }
  }
}

void UnitTrial::Train() {
  for (int i = 0; i < 3; ++i) {
    Pending& update = pending_.emplace_back();
    update.group = random_() % spec_.replica_groups;
    update.seq = ++seq_;
    update.is_images = random_() % 4 == 0;
    if (spec_.sync.has_value() && !update.is_images) {
      AddStep(update);
      continue;
    }
    std::vector<std::int64_t> ids;
    for (int n = 0; n < 10; ++n) {
      const std::int64_t id = RandomId();
      std::vector<float>& gradient = update.gradients[id];
      if (!gradient.empty()) continue;
      ids.push_back(id);
      for (std::uint32_t c = 0; c < spec_.dim; ++c) {
        gradient.push_back(RandomGradient());
      }
      for (std::uint32_t c = 0; update.is_images && c < StateFloats(); ++c) {
        gradient.push_back(static_cast<float>(random_() % 1000));
      }
    }
    std::sort(ids.begin(), ids.end());
    const auto modelled = Send(*model_, update, ids);
    ASSERT_THAT(modelled, IsOk());
  }
  // One plan for all: rows are updated in the order of the updates.
  const std::size_t newest = owners_by_plan_.size() - 1;
  known_plan_ = random_() % 4 == 0 ? std::max<std::size_t>(newest - 1, 1) : newest;
  SendPending();
  const bool is_known = owners_by_plan_[known_plan_] == owners_;
  if (spec_.replica_groups > 1 && is_known && random_() % 2 == 0) Average();
}

void UnitTrial::SendPending() {
  for (Pending& update : pending_) {
    update.contributions.empty() ? SendLeft(update) : StepLeft(update);
  }
  std::erase_if(pending_, [](const Pending& update) { return update.is_done(); });
}

void UnitTrial::Average() {
  DecidedSync averaged{.tables = {{kTable, {}}}};
  for (std::size_t n = 0; n < kNodes; ++n) {
    const auto synced = Await<SyncResult>([&](SyncDone done) {
      node(n).Sync({{kTable}, PlanVersion{1}}, absl::InfiniteFuture(), std::move(done));
    });
    if (absl::IsFailedPrecondition(synced.status())) continue;  // Nothing was ever there.
    ASSERT_THAT(synced, IsOk());
    std::vector<AveragedRows>& rows = averaged.tables[0].rows;
    rows.insert(rows.end(), synced->tables[0].averaged.begin(), synced->tables[0].averaged.end());
  }
  ASSERT_THAT(Await<Applied>(
                  [&](AppliedDone done) { model_->Apply(std::move(averaged), std::move(done)); }),
              IsOk());
}

}  // namespace embla::testing
