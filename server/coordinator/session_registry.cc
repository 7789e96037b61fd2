#include "server/coordinator/session_registry.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

constexpr std::string_view kClosedKey = "sessions/closed";
constexpr std::string_view kTrainersPrefix = "sessions/of/";

std::string ToJson(const SessionSet& sessions) {
  Json ranges = Json::array();
  for (const auto& [first, last] : sessions.ranges()) {
    ranges.push_back(ToInt(first));
    ranges.push_back(ToInt(last));
  }
  return DumpJson({{"ranges", ranges}});
}

absl::StatusOr<SessionSet> SessionsFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "closed sessions");
  const Json& ends = fields.Array("ranges");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  if (ends.size() % 2 != 0) return absl::InvalidArgumentError("a range has no end");
  std::vector<SessionSet::Range> ranges;
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
    if (!ends[i].is_number_unsigned() || !ends[i + 1].is_number_unsigned()) {
      return absl::InvalidArgumentError("a session is no number");
    }
    ranges.emplace_back(SessionId{ends[i].get<std::uint64_t>()},
                        SessionId{ends[i + 1].get<std::uint64_t>()});
  }
  return SessionSet::FromRanges(std::move(ranges));
}

std::string ToJson(const TrainerSession& latest) {
  return DumpJson({{"incarnation", latest.incarnation}, {"session", ToInt(latest.session)}});
}

absl::StatusOr<TrainerSession> TrainerSessionFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "session of a trainer");
  TrainerSession latest;
  latest.incarnation = fields.Unsigned("incarnation", 1, UINT64_MAX);
  latest.session = SessionId{fields.Unsigned("session", 1, UINT64_MAX)};
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return latest;
}

absl::Status Unreadable(std::string_view key, const absl::Status& status) {
  return absl::DataLossError(
      absl::StrCat("state key ", ToAbsl(key), " is not readable: ", status.message()));
}

}  // namespace

absl::StatusOr<SessionRegistry> SessionRegistry::Load(StateStore& store) {
  SessionRegistry registry(store);
  const absl::StatusOr<StateEntry> entry = store.Get(kClosedKey);
  if (entry.ok()) {
    const absl::StatusOr<SessionSet> refused = SessionsFromJson(entry->value);
    if (!refused.ok()) return Unreadable(kClosedKey, refused.status());
    registry.closed_revision_ = entry->revision;
    registry.round_ = *refused;
    registry.Publish({*refused, {}});
  } else if (!absl::IsNotFound(entry.status())) {
    return entry.status();
  }
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> trainers, store.List(kTrainersPrefix));
  for (const StateEntry& trainer : trainers) {
    const absl::StatusOr<TrainerSession> latest = TrainerSessionFromJson(trainer.value);
    if (!latest.ok()) return Unreadable(trainer.key, latest.status());
    registry.trainers_[trainer.key.substr(kTrainersPrefix.size())] = {*latest, trainer.revision};
  }
  return registry;
}

absl::Status SessionRegistry::Close(SessionId session) {
  if (closed_->refused.Has(session)) return absl::OkStatus();
  ClosedSessions closed = *closed_;
  closed.refused.Insert(session);
  const StateCompare compares[] = {{std::string(kClosedKey), closed_revision_}};
  const StateWrite writes[] = {{std::string(kClosedKey), ToJson(closed.refused)}};
  EMBLA_ASSIGN_OR_RETURN(closed_revision_, store_->Commit(compares, writes));
  if (round_ == closed.settled) round_ = closed.refused;
  Publish(std::move(closed));
  return absl::OkStatus();
}

absl::Status SessionRegistry::SetLatestOf(const std::string& trainer,
                                          const TrainerSession& latest) {
  const std::string key = absl::StrCat(ToAbsl(kTrainersPrefix), trainer);
  const auto known = trainers_.find(trainer);
  const StateCompare compares[] = {
      {key, known == trainers_.end() ? kAbsent : known->second.revision}};
  const StateWrite writes[] = {{key, ToJson(latest)}};
  EMBLA_ASSIGN_OR_RETURN(const Revision revision, store_->Commit(compares, writes));
  trainers_[trainer] = {latest, revision};
  return absl::OkStatus();
}

TrainerSession SessionRegistry::LatestOf(const std::string& trainer) const {
  const auto known = trainers_.find(trainer);
  return known == trainers_.end() ? TrainerSession() : known->second.latest;
}

bool SessionRegistry::Settle(std::uint64_t refused) {
  if (round_ == closed_->settled || refused < round_.size()) return false;
  ClosedSessions closed = *closed_;
  closed.settled = std::exchange(round_, closed.refused);
  Publish(std::move(closed));
  return true;
}

}  // namespace embla
