#include "tests/fault/fault_schedule.h"

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fault/chaos_cluster.h"

namespace embla::fault {
namespace {

// The text that arms a process: it dies after some passes, at most hits_max.
std::string DrawPlace(Program program, std::mt19937_64& random) {
  std::vector<const FailpointPlace*> drawn;
  for (const FailpointPlace& place : FailpointPlaces()) {
    if (place.program == program && place.hits_max > 0) drawn.push_back(&place);
  }
  const FailpointPlace& place = *drawn[random() % drawn.size()];
  return absl::StrCat(place.name, "=crash@", 1 + random() % place.hits_max);
}

struct Chance {
  FaultKind kind;
  int weight;
};
constexpr Chance kChances[] = {
    {FaultKind::kKill, 30},       {FaultKind::kStop, 14},  {FaultKind::kFull, 5},
    {FaultKind::kCut, 6},         {FaultKind::kCutTo, 4},  {FaultKind::kCutFrom, 4},
    {FaultKind::kReset, 8},       {FaultKind::kDrop, 12},  {FaultKind::kDuplicate, 8},
    {FaultKind::kStaleClient, 8}, {FaultKind::kDelay, 10},
};
constexpr int kRoomBytesMax = 20'000;  // Some updates.

FaultKind DrawKind(std::mt19937_64& random) {
  int sum = 0;
  for (const Chance& chance : kChances) sum += chance.weight;
  int dice = static_cast<int>(random() % sum);
  for (const Chance& chance : kChances) {
    dice -= chance.weight;
    if (dice < 0) return chance.kind;
  }
  return FaultKind::kKill;
}

// Mostly short, sometimes past the time after which a silent node is called dead.
absl::Duration DrawLength(FaultKind kind, std::mt19937_64& random) {
  const auto between = [&random](int least, int most) {
    return absl::Milliseconds(least + random() % (most - least));
  };
  switch (kind) {
    case FaultKind::kKill:
      return between(0, 300);
    case FaultKind::kFull:
      return between(100, 1000);
    case FaultKind::kStop:
    case FaultKind::kCut:
    case FaultKind::kCutTo:
    case FaultKind::kCutFrom:
      return random() % 8 == 0 ? between(1500, 3000) : between(20, 500);
    case FaultKind::kReset:
    case FaultKind::kStaleClient:
      return absl::ZeroDuration();
    case FaultKind::kDrop:
    case FaultKind::kDuplicate:
    case FaultKind::kDelay:
      return between(200, 800);
  }
  return absl::ZeroDuration();
}

LinkKind DrawLink(std::mt19937_64& random) {
  const std::uint64_t dice = random() % 10;
  return dice < 5 ? LinkKind::kData : dice < 9 ? LinkKind::kNode : LinkKind::kTrainers;
}

// Draws the process to be killed or stopped: half of the time a shard server.
int DrawVictim(const ScheduleOptions& options, std::mt19937_64& random) {
  const std::uint64_t dice = random() % 8;
  if (dice < 2) return kCoordinator;
  if (dice < 4) return options.shards + static_cast<int>(random() % options.trainers);
  return static_cast<int>(random() % options.shards);
}

Fault DrawFault(const ScheduleOptions& options, std::mt19937_64& random) {
  Fault fault;
  fault.kind = DrawKind(random);
  fault.gap = absl::Milliseconds(random() % 1500);
  fault.length = DrawLength(fault.kind, random);
  fault.victim = static_cast<int>(random() % options.shards);
  fault.link = DrawLink(random);
  const bool is_process = fault.kind == FaultKind::kKill || fault.kind == FaultKind::kStop;
  if (is_process) fault.victim = DrawVictim(options, random);
  const bool is_shard = fault.victim >= 0 && fault.victim < options.shards;
  const bool ends_it = fault.kind == FaultKind::kKill || fault.kind == FaultKind::kFull;
  if (ends_it && is_shard && !options.kills_shards) {
    fault.kind = FaultKind::kStop;
    fault.length = DrawLength(fault.kind, random);
  }
  fault.room_bytes = static_cast<int>(random() % kRoomBytesMax);
  const bool has_places = is_shard || fault.victim == kCoordinator;
  if (fault.kind == FaultKind::kKill && has_places && random() % 3 != 0) {
    fault.failpoint =
        DrawPlace(fault.victim == kCoordinator ? Program::kCoordinator : Program::kShard, random);
  }
  return fault;
}

std::string NameOf(LinkKind link) {
  switch (link) {
    case LinkKind::kData:
      return "data link";
    case LinkKind::kNode:
      return "node link";
    case LinkKind::kTrainers:
      return "trainers' link";
  }
  return "";
}

}  // namespace

std::string NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kStop:
      return "stop";
    case FaultKind::kFull:
      return "full disk";
    case FaultKind::kCut:
      return "cut";
    case FaultKind::kCutTo:
      return "cut to";
    case FaultKind::kCutFrom:
      return "cut from";
    case FaultKind::kReset:
      return "reset";
    case FaultKind::kDrop:
      return "drop";
    case FaultKind::kDuplicate:
      return "duplicate";
    case FaultKind::kDelay:
      return "delay";
    case FaultKind::kStaleClient:
      return "stale client";
  }
  return "";
}

bool IsOfProcess(FaultKind kind) {
  return kind == FaultKind::kKill || kind == FaultKind::kStop || kind == FaultKind::kFull;
}

std::string Fault::Text(int shards) const {
  const std::string name = NameOfVictim(victim, shards);
  std::string text = absl::StrCat("after ", absl::FormatDuration(gap), " ", NameOf(kind));
  if (kind == FaultKind::kKill || kind == FaultKind::kStop) {
    absl::StrAppend(&text, " ", name);
  } else if (kind == FaultKind::kFull) {
    absl::StrAppend(&text, " of ", name, " but for ", room_bytes, " bytes");
  } else if (kind != FaultKind::kStaleClient) {
    absl::StrAppend(&text, " ", NameOf(link), link == LinkKind::kTrainers ? "" : " of ",
                    link == LinkKind::kTrainers ? "" : name);
  }
  if (length > absl::ZeroDuration()) {
    absl::StrAppend(&text, " for ", absl::FormatDuration(length));
  }
  if (!failpoint.empty()) absl::StrAppend(&text, ", back with ", failpoint);
  return text;
}

std::vector<std::vector<Fault>> DrawSchedule(std::uint64_t seed, const ScheduleOptions& options) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Fault>> lanes(options.lanes);
  for (int i = 0; i < options.faults; ++i) {
    lanes[i % options.lanes].push_back(DrawFault(options, random));
  }
  return lanes;
}

LinkFaults FaultsOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDrop:
      return {.drop_request = 0.1, .drop_reply = 0.1};
    case FaultKind::kDuplicate:
      return {.duplicate = 0.5, .delay = 0.5, .delay_max = absl::Milliseconds(50)};
    case FaultKind::kDelay:
      return {.delay = 0.7, .delay_max = absl::Milliseconds(150)};
    case FaultKind::kCut:
      return {.cuts_requests = true, .cuts_replies = true};
    case FaultKind::kCutTo:
      return {.cuts_requests = true};
    case FaultKind::kCutFrom:
      return {.cuts_replies = true};
    default:
      return {};
  }
}

}  // namespace embla::fault
