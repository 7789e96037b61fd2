#include "server/coordinator/session_ranks.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

constexpr std::string_view kRanksPrefix = "sessions/ranks/";

std::string KeyOf(SessionId session) {
  return absl::StrCat(ToAbsl(kRanksPrefix), absl::StrFormat("%020d", ToInt(session)));
}

std::string ToJson(const RankedSession& session) {
  Json json = {{"rank", ToInt(session.rank)}, {"ranks", session.ranks}, {"tables", Json::array()}};
  for (const TableId table : session.tables) json["tables"].push_back(ToInt(table));
  if (!session.trainer.empty()) json["trainer"] = session.trainer;
  if (session.is_replaced) json["is_replaced"] = true;
  return DumpJson(json);
}

absl::StatusOr<RankedSession> FromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "rank of a session");
  RankedSession session;
  session.ranks = static_cast<std::uint32_t>(fields.Unsigned("ranks", 1, kRanksMax));
  session.rank = Rank{static_cast<std::uint32_t>(fields.Unsigned("rank", 0, kRanksMax - 1))};
  if (fields.Has("trainer")) session.trainer = fields.Text("trainer");
  fields.MaybeFlag("is_replaced", &session.is_replaced);
  const Json& tables = fields.Array("tables");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  for (const Json& table : tables) {
    if (!table.is_number_unsigned() || table.get<std::uint64_t>() > UINT32_MAX) {
      return absl::InvalidArgumentError("a table's id is no 32-bit number");
    }
    session.tables.insert(TableId{table.get<std::uint32_t>()});
  }
  return session;
}

absl::StatusOr<std::pair<SessionId, RankedSession>> FromEntry(const StateEntry& entry) {
  std::uint64_t id = 0;
  if (!absl::SimpleAtoi(ToAbsl(std::string_view(entry.key).substr(kRanksPrefix.size())), &id)) {
    return absl::InvalidArgumentError("it does not end with a number");
  }
  EMBLA_ASSIGN_OR_RETURN(RankedSession session, FromJson(entry.value));
  return std::pair(SessionId{id}, std::move(session));
}

}  // namespace

absl::StatusOr<SessionRanks> SessionRanks::Load(const StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(kRanksPrefix));
  SessionRanks ranks;
  for (const StateEntry& entry : entries) {
    absl::StatusOr<std::pair<SessionId, RankedSession>> read = FromEntry(entry);
    if (!read.ok()) {
      return absl::DataLossError(
          absl::StrCat("state key ", entry.key, " is not readable: ", read.status().message()));
    }
    ranks.Put(read->first, std::move(read->second));
  }
  return ranks;
}

const RankedSession* SessionRanks::Find(SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : &found->second;
}

std::optional<SessionId> SessionRanks::HolderOf(TableId table, Rank rank) const {
  const auto found = holders_.find({table, rank});
  if (found == holders_.end()) return std::nullopt;
  return found->second;
}

absl::Status SessionRanks::Write(StateStore& store, const Changes& changes) {
  for (auto change = changes.begin(); change != changes.end();) {
    const auto first = change;
    std::vector<StateWrite> writes;
    for (; change != changes.end() && writes.size() < kStateCommitOpsMax; ++change) {
      std::optional<std::string> value;
      if (change->second) value = ToJson(*change->second);
      writes.push_back({KeyOf(change->first), std::move(value)});
    }
    EMBLA_RETURN_IF_ERROR(store.Commit({}, writes).status());
    for (auto made = first; made != change; ++made) Put(made->first, std::nullopt);
    for (auto made = first; made != change; ++made) Put(made->first, made->second);
  }
  return absl::OkStatus();
}

void SessionRanks::Put(SessionId session, const std::optional<RankedSession>& value) {
  if (const auto before = sessions_.find(session); before != sessions_.end()) {
    for (const TableId table : before->second.tables) {
      const auto holder = holders_.find({table, before->second.rank});
      if (holder != holders_.end() && holder->second == session) holders_.erase(holder);
    }
    sessions_.erase(before);
  }
  if (!value) return;
  for (const TableId table : value->tables) holders_[{table, value->rank}] = session;
  sessions_.emplace(session, *value);
}

}  // namespace embla
