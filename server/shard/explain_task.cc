#include "server/shard/explain_task.h"

#include "absl/strings/str_cat.h"

namespace embla {
namespace {

std::optional<std::int64_t> RowOf(zch::ZchSlot slot) {
  if (slot == zch::kNoSlot) return std::nullopt;
  return static_cast<std::int64_t>(slot);
}

IdExplanation Describe(const zch::Explanation& known, zch::Policy policy) {
  IdExplanation explanation;
  explanation.bucket = known.place.bucket;
  explanation.row = RowOf(known.slot);
  explanation.shared_row = RowOf(known.reserved_slot);
  explanation.last_step = known.last_step;
  if (policy == zch::Policy::kLfu || policy == zch::Policy::kDistanceLfu) {
    explanation.touches = known.word;
  }
  if (policy == zch::Policy::kTtl) explanation.expires_at_step = known.word;
  explanation.seen = known.waiting_count;
  explanation.group_residents = known.group_residents;
  explanation.evictions_known_since = known.evictions_known_since;
  if (known.last_eviction.has_value()) {
    const zch::Eviction& last = *known.last_eviction;
    explanation.eviction = {last.step, last.last_step, std::string(zch::NameOf(last.reason))};
  }
  return explanation;
}

}  // namespace

void ExplainTask::Run(std::uint32_t device) {
  for (const OwnSlice& own : shard_->slices(device)) {
    if (!own.present.Contains(shard_->id_rows().RowOf(id_))) continue;
    const absl::StatusOr<zch::Explanation> known = own.ids->Explain(id_);
    if (!known.ok()) {
      found_ = known.status();
      continue;
    }
    found_ = Describe(*known, shard_->spec(device).zch->policy);
    (*found_)->device = device;
  }
}

void ExplainTask::Finish() {
  if (found_.has_value()) return done_(*std::move(found_));
  done_(absl::FailedPreconditionError(absl::StrCat("table ", shard_->name(), ": the bucket of id ",
                                                   ToInt(id_), " is not on this node")));
}

}  // namespace embla
