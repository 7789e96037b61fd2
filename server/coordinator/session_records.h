// The keys and values of sessions in the state store:
//   sessions/boots/BOOT    {"until": n, "ended": e}: the counters below n of the coordinator
//                          process BOOT may have been given; e: all of them are closed
//   sessions/closed/BLOCK  {"bits": hex}: which sessions of a block are closed
//   sessions/ranks/        see session_ranks.h
//   sessions/of/NAME       {"client_nonce": i, "session": s}: the latest of the trainer NAME, and
//                          its client
//
// A session's id is the random number of the coordinator process that gave it, BOOT, in the upper
// 32 bits, and a counter from 1 in the lower ones. So a store that has gone back in time gives no
// number again. A block is 1024 sessions: closing one writes one block, however many are closed.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/ids.h"

namespace embla {

constexpr SessionId MakeSessionId(std::uint32_t boot, std::uint32_t counter) {
  return SessionId{std::uint64_t{boot} << 32 | counter};
}
constexpr std::uint32_t BootOf(SessionId session) {
  return static_cast<std::uint32_t>(ToInt(session) >> 32);
}
constexpr std::uint32_t CounterOf(SessionId session) {
  return static_cast<std::uint32_t>(ToInt(session));
}

inline constexpr std::uint32_t kSessionBlock = 1024;

// The session's id / kSessionBlock.
enum class SessionBlock : std::uint64_t {};
constexpr SessionBlock BlockOf(SessionId session) {
  return SessionBlock{ToInt(session) / kSessionBlock};
}
// From the block's first session on.
using SessionBits = std::bitset<kSessionBlock>;

struct BootRecord {
  std::uint32_t until = 1;
  bool ended = false;
};

struct TrainerSession {
  SessionId session{};
  std::uint64_t client_nonce = 0;  // Nonce of the client that it was given to; not 0.
};

inline constexpr std::string_view kBootsPrefix = "sessions/boots/";
inline constexpr std::string_view kClosedPrefix = "sessions/closed/";
inline constexpr std::string_view kTrainersPrefix = "sessions/of/";

std::string KeyOfBoot(std::uint32_t boot);
std::string KeyOfBlock(SessionBlock block);
std::string KeyOfTrainer(std::string_view name);

std::string ToJson(const BootRecord& record);
std::string ToJson(const SessionBits& bits);
std::string ToJson(const TrainerSession& latest);

// DataLoss: what is in the store is none.
absl::StatusOr<std::uint32_t> BootFromKey(std::string_view key);
absl::StatusOr<SessionBlock> BlockFromKey(std::string_view key);
absl::StatusOr<BootRecord> BootFromJson(std::string_view key, std::string_view text);
absl::StatusOr<SessionBits> BitsFromJson(std::string_view key, std::string_view text);
absl::StatusOr<TrainerSession> TrainerFromJson(std::string_view key, std::string_view text);

}  // namespace embla
