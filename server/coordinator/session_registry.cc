#include "server/coordinator/session_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// Keys of trainers and of blocks that one commit may have.
constexpr std::size_t kDeletedAtOnce = 48;
// Most sessions known to one node only: bounds the time of a union.
constexpr std::uint64_t kUnitedMax = std::uint64_t{1} << 24;

SessionId At(SessionBlock block, std::size_t position) {
  return SessionId{ToInt(block) * kSessionBlock + position};
}

// Joins what touches or overlaps.
absl::StatusOr<SessionSet> SetOf(std::vector<SessionSet::Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<SessionSet::Range> apart;
  for (const auto& [first, last] : ranges) {
    if (!apart.empty() && ToInt(first) <= ToInt(apart.back().second) + 1) {
      apart.back().second = std::max(apart.back().second, last);
    } else {
      apart.emplace_back(first, last);
    }
  }
  return SessionSet::FromRanges(std::move(apart));
}

}  // namespace

absl::StatusOr<SessionRegistry> SessionRegistry::Load(StateStore& store, std::uint32_t boot) {
  SessionRegistry registry(store, boot);
  std::vector<SessionSet::Range> closed;
  EMBLA_RETURN_IF_ERROR(registry.LoadBoots(closed));
  EMBLA_RETURN_IF_ERROR(registry.LoadBlocks(closed));
  EMBLA_ASSIGN_OR_RETURN(registry.closed_.refused, SetOf(std::move(closed)));
  for (auto& [number, known] : registry.boots_) {
    if (known.record.until == 1) continue;
    const SessionSet::Range given{MakeSessionId(number, 1),
                                  MakeSessionId(number, known.record.until - 1)};
    for (const auto& [first, last] : registry.closed_.refused.Within(given)) {
      known.closed += ToInt(last) - ToInt(first) + 1;
    }
  }
  EMBLA_RETURN_IF_ERROR(registry.LoadTrainers());
  // Nodes are told all of it when they come.
  registry.told_.emplace_back(registry.number_, registry.closed_.refused);
  return registry;
}

absl::Status SessionRegistry::LoadBoots(std::vector<SessionSet::Range>& closed) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store_->List(kBootsPrefix));
  for (const StateEntry& entry : entries) {
    EMBLA_ASSIGN_OR_RETURN(const std::uint32_t boot, BootFromKey(entry.key));
    EMBLA_ASSIGN_OR_RETURN(const BootRecord record, BootFromJson(entry.key, entry.value));
    boots_[boot].record = record;
    if (!record.ended || record.until == 1) continue;
    closed.emplace_back(MakeSessionId(boot, 1), MakeSessionId(boot, record.until - 1));
  }
  // A number that was drawn before, by a chance of one in billions.
  while (boots_.contains(boot_) || boot_ == 0) ++boot_;
  number_ = std::uint64_t{boot_} << 32;
  return absl::OkStatus();
}

absl::Status SessionRegistry::LoadBlocks(std::vector<SessionSet::Range>& closed) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store_->List(kClosedPrefix));
  for (const StateEntry& entry : entries) {
    EMBLA_ASSIGN_OR_RETURN(const SessionBlock block, BlockFromKey(entry.key));
    EMBLA_ASSIGN_OR_RETURN(const SessionBits bits, BitsFromJson(entry.key, entry.value));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (bits[i] && At(block, i) != SessionId{}) closed.emplace_back(At(block, i), At(block, i));
    }
    const auto boot = boots_.find(BootOf(At(block, 0)));
    const bool is_left = boot != boots_.end() && boot->second.record.ended &&
                         CounterOf(At(block, 0)) < boot->second.record.until;
    if (is_left) left_blocks_.push_back(block);
  }
  return absl::OkStatus();
}

absl::Status SessionRegistry::LoadTrainers() {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store_->List(kTrainersPrefix));
  for (const StateEntry& entry : entries) {
    EMBLA_ASSIGN_OR_RETURN(const TrainerSession latest, TrainerFromJson(entry.key, entry.value));
    const std::string name = entry.key.substr(kTrainersPrefix.size());
    trainers_[name] = {latest, entry.revision};
    trainer_of_[latest.session] = name;
    if (IsClosed(latest.session)) ending_.insert(latest.session);
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionId> SessionRegistry::Next() {
  Boot& boot = boots_[boot_];
  if (next_ == boot.record.until) {
    if (next_ > UINT32_MAX - 2 * kSessionBlock) {
      return absl::ResourceExhaustedError(
          "this process has given all of its session numbers; restart the coordinator");
    }
    BootRecord record = boot.record;
    record.until = (next_ / kSessionBlock + 1) * kSessionBlock;
    const StateWrite writes[] = {{KeyOfBoot(boot_), ToJson(record)}};
    EMBLA_RETURN_IF_ERROR(store_->Commit({}, writes).status());
    boot.record = record;
  }
  return MakeSessionId(boot_, next_++);
}

bool SessionRegistry::WasGiven(SessionId session) const {
  if (BootOf(session) == boot_) return CounterOf(session) >= 1 && CounterOf(session) < next_;
  const auto boot = boots_.find(BootOf(session));
  return boot != boots_.end() && CounterOf(session) >= 1 &&
         CounterOf(session) < boot->second.record.until;
}

SessionBits SessionRegistry::BitsOf(SessionBlock block) const {
  SessionBits bits;
  const SessionId first = At(block, 0);
  for (const auto& [begin, end] : closed_.refused.Within({first, At(block, kSessionBlock - 1)})) {
    for (std::uint64_t i = ToInt(begin); i <= ToInt(end); ++i) bits.set(i - ToInt(first));
  }
  return bits;
}

bool SessionRegistry::Ends(std::uint32_t boot, std::uint64_t more) const {
  const auto known = boots_.find(boot);
  if (boot == boot_ || known == boots_.end() || known->second.record.ended) return false;
  const std::uint32_t until = known->second.record.until;
  return until > 1 && known->second.closed + more == until - 1;
}

SessionRegistry::Closing SessionRegistry::ClosingOf(std::span<const SessionId> sessions) const {
  Closing closing;
  for (const SessionId session : sessions) {
    if (IsClosed(session)) continue;
    const auto [entry, is_new] = closing.blocks.try_emplace(BlockOf(session));
    if (is_new) entry->second = BitsOf(entry->first);
    const std::size_t position = ToInt(session) % kSessionBlock;
    if (entry->second[position]) continue;  // The session is in `sessions` twice.
    entry->second.set(position);
    closing.sessions.push_back(session);
    const auto boot = boots_.find(BootOf(session));
    const bool is_known = boot != boots_.end() && CounterOf(session) < boot->second.record.until;
    closing.more[BootOf(session)] += is_known ? 1 : 0;
  }
  return closing;
}

// A process without open sessions is one record, instead of its blocks.
std::vector<StateWrite> SessionRegistry::WritesOf(const Closing& closing) const {
  std::vector<StateWrite> writes;
  for (const auto& [block, bits] : closing.blocks) {
    const SessionId first = At(block, 0);
    const std::uint32_t boot = BootOf(first);
    const bool ends = Ends(boot, closing.more.at(boot));
    if (ends && CounterOf(first) < boots_.at(boot).record.until) continue;
    writes.push_back({KeyOfBlock(block), ToJson(bits)});
  }
  for (const auto& [boot, more] : closing.more) {
    if (!Ends(boot, more)) continue;
    const BootRecord ended{.until = boots_.at(boot).record.until, .ended = true};
    writes.push_back({KeyOfBoot(boot), ToJson(ended)});
  }
  return writes;
}

void SessionRegistry::CloseInMemory(const Closing& closing) {
  for (const auto& [boot, more] : closing.more) {
    const auto known = boots_.find(boot);
    if (known == boots_.end()) continue;
    const bool ends = Ends(boot, more);
    known->second.closed += more;
    if (!ends) continue;
    known->second.record.ended = true;
    LeaveBlocksOf(boot);
  }
  for (const SessionId session : closing.sessions) {
    closed_.refused.Insert(session);
    fresh_.refused.Insert(session);
    if (trainer_of_.contains(session)) ending_.insert(session);
  }
}

void SessionRegistry::LeaveBlocksOf(std::uint32_t boot) {
  const SessionId last = MakeSessionId(boot, boots_.at(boot).record.until - 1);
  const std::uint64_t end = ToInt(BlockOf(last)) + 1;
  for (std::uint64_t block = ToInt(BlockOf(MakeSessionId(boot, 0))); block < end; ++block) {
    left_blocks_.push_back(SessionBlock{block});
  }
}

absl::Status SessionRegistry::Close(std::span<const SessionId> sessions) {
  const Closing closing = ClosingOf(sessions);
  if (closing.sessions.empty()) return absl::OkStatus();
  EMBLA_CHECK(closing.blocks.size() <= kBlocksAtOnceMax);
  EMBLA_RETURN_IF_ERROR(store_->Commit({}, WritesOf(closing)).status());
  CloseInMemory(closing);
  return absl::OkStatus();
}

absl::Status SessionRegistry::Unite(const SessionSet& closed) {
  const SessionSet unknown = closed.Minus(closed_.refused);
  if (unknown.size() > kUnitedMax) {
    return absl::InvalidArgumentError(absl::StrCat(unknown.size(),
                                                   " sessions are said to be closed"
                                                   " that nobody else knows, at most ",
                                                   kUnitedMax));
  }
  std::vector<SessionId> sessions;
  std::set<SessionBlock> blocks;
  for (const auto& [first, last] : unknown.ranges()) {
    for (std::uint64_t id = ToInt(first); id <= ToInt(last); ++id) {
      const SessionBlock block = BlockOf(SessionId{id});
      if (!blocks.contains(block) && blocks.size() == kBlocksAtOnceMax) {
        EMBLA_RETURN_IF_ERROR(Close(sessions));
        sessions.clear();
        blocks.clear();
      }
      blocks.insert(block);
      sessions.push_back(SessionId{id});
    }
  }
  return Close(sessions);
}

absl::StatusOr<bool> SessionRegistry::CloseSomeEarlier(
    const std::function<bool(SessionId)>& is_kept) {
  std::vector<SessionId> sessions;
  std::set<SessionBlock> blocks;
  for (const auto& [boot, known] : boots_) {
    if (boot == boot_ || known.record.ended) continue;
    for (std::uint32_t counter = 1; counter < known.record.until; ++counter) {
      const SessionId session = MakeSessionId(boot, counter);
      if (IsClosed(session) || is_kept(session)) continue;
      blocks.insert(BlockOf(session));
      if (blocks.size() > kBlocksAtOnceMax) break;
      sessions.push_back(session);
    }
  }
  EMBLA_RETURN_IF_ERROR(Close(sessions));
  return !sessions.empty();
}

absl::Status SessionRegistry::SetLatestOf(const std::string& trainer,
                                          const TrainerSession& latest) {
  const std::string key = KeyOfTrainer(trainer);
  const auto known = trainers_.find(trainer);
  const StateCompare compares[] = {
      {key, known == trainers_.end() ? kAbsent : known->second.revision}};
  const StateWrite writes[] = {{key, ToJson(latest)}};
  EMBLA_ASSIGN_OR_RETURN(const Revision revision, store_->Commit(compares, writes));
  if (known != trainers_.end()) {
    trainer_of_.erase(known->second.latest.session);
    ending_.erase(known->second.latest.session);
  }
  trainers_[trainer] = {latest, revision};
  trainer_of_[latest.session] = trainer;
  return absl::OkStatus();
}

TrainerSession SessionRegistry::LatestOf(const std::string& trainer) const {
  const auto known = trainers_.find(trainer);
  return known == trainers_.end() ? TrainerSession() : known->second.latest;
}

std::string SessionRegistry::TrainerOf(SessionId session) const {
  const auto known = trainer_of_.find(session);
  return known == trainer_of_.end() ? std::string() : known->second;
}

absl::Status SessionRegistry::TidySome() {
  std::vector<StateWrite> writes;
  std::vector<SessionId> over;
  for (const SessionId session : ending_) {
    if (over.size() == kDeletedAtOnce) break;
    if (!IsSettled(session)) continue;
    over.push_back(session);
    writes.push_back({KeyOfTrainer(trainer_of_.at(session)), std::nullopt});
  }
  const std::size_t blocks = std::min(left_blocks_.size(), kDeletedAtOnce);
  for (std::size_t i = 0; i < blocks; ++i) {
    writes.push_back({KeyOfBlock(left_blocks_[i]), std::nullopt});
  }
  if (writes.empty()) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(store_->Commit({}, writes).status());
  left_blocks_.erase(left_blocks_.begin(),
                     left_blocks_.begin() + static_cast<std::ptrdiff_t>(blocks));
  for (const SessionId session : over) {
    trainers_.erase(trainer_of_.at(session));
    trainer_of_.erase(session);
    ending_.erase(session);
  }
  return absl::OkStatus();
}

SessionNews SessionRegistry::TakeNews() {
  SessionNews news{++number_, std::exchange(fresh_, {})};
  SessionSet unsettled = news.closed.refused.Minus(closed_.settled);
  if (!unsettled.empty()) told_.emplace_back(news.number, std::move(unsettled));
  if (told_.size() > kNewsWaitingMax) {  // A node that counts has been away for long.
    told_[1].second.Include(told_[0].second);
    told_.pop_front();
  }
  return news;
}

void SessionRegistry::Settle(std::optional<std::uint64_t> number) {
  SessionSet settled;
  if (!number.has_value()) settled = fresh_.refused;
  while (!told_.empty() && (!number.has_value() || told_.front().first <= *number)) {
    settled.Include(told_.front().second);
    told_.pop_front();
  }
  settled = settled.Minus(closed_.settled);
  if (settled.empty()) return;
  closed_.settled.Include(settled);
  fresh_.settled.Include(settled);
}

std::uint64_t SessionRegistry::NewsOf(SessionId session) const {
  if (IsSettled(session)) return 0;
  for (const auto& [number, sessions] : told_) {
    if (sessions.Has(session)) return number;
  }
  return number_ + 1;
}

}  // namespace embla
