#include "server/coordinator/session_records.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

absl::Status Unreadable(std::string_view key, std::string_view why) {
  return absl::DataLossError(
      absl::StrCat("state key ", ToAbsl(key), " is not readable: ", ToAbsl(why)));
}

absl::Status Unreadable(std::string_view key, const absl::Status& status) {
  return Unreadable(key, Message(status));
}

absl::StatusOr<std::uint64_t> NumberBehind(std::string_view prefix, std::string_view key) {
  std::uint64_t number = 0;
  if (absl::SimpleAtoi(ToAbsl(key.substr(prefix.size())), &number)) return number;
  return Unreadable(key, "it does not end with a number");
}

}  // namespace

std::string KeyOfBoot(std::uint32_t boot) {
  return absl::StrCat(ToAbsl(kBootsPrefix), absl::StrFormat("%010d", boot));
}

std::string KeyOfBlock(SessionBlock block) {
  return absl::StrCat(ToAbsl(kClosedPrefix), absl::StrFormat("%020d", ToInt(block)));
}

std::string KeyOfTrainer(std::string_view name) {
  return absl::StrCat(ToAbsl(kTrainersPrefix), ToAbsl(name));
}

std::string ToJson(const BootRecord& record) {
  return DumpJson({{"ended", record.ended}, {"until", record.until}});
}

std::string ToJson(const SessionBits& bits) {
  if (bits.all()) return DumpJson({{"bits", "all"}});
  std::string hex;
  for (std::size_t i = 0; i < bits.size(); i += 4) {
    const int digit = bits[i] + 2 * bits[i + 1] + 4 * bits[i + 2] + 8 * bits[i + 3];
    hex.push_back(kDigits[static_cast<std::size_t>(digit)]);
  }
  return DumpJson({{"bits", hex}});
}

std::string ToJson(const TrainerSession& latest) {
  return DumpJson({{"client_nonce", latest.client_nonce}, {"session", ToInt(latest.session)}});
}

absl::StatusOr<std::uint32_t> BootFromKey(std::string_view key) {
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t boot, NumberBehind(kBootsPrefix, key));
  if (boot == 0 || boot > UINT32_MAX) return Unreadable(key, "it is no number of a process");
  return static_cast<std::uint32_t>(boot);
}

absl::StatusOr<SessionBlock> BlockFromKey(std::string_view key) {
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t block, NumberBehind(kClosedPrefix, key));
  if (block > UINT64_MAX / kSessionBlock) return Unreadable(key, "it is no number of a block");
  return SessionBlock{block};
}

absl::StatusOr<BootRecord> BootFromJson(std::string_view key, std::string_view text) {
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Unreadable(key, json.status());
  JsonFields fields(*json, "sessions of a process");
  BootRecord record;
  fields.MaybeFlag("ended", &record.ended);
  record.until = static_cast<std::uint32_t>(fields.Unsigned("until", 1, UINT32_MAX));
  if (const absl::Status read = fields.Finish(); !read.ok()) return Unreadable(key, read);
  return record;
}

absl::StatusOr<SessionBits> BitsFromJson(std::string_view key, std::string_view text) {
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Unreadable(key, json.status());
  JsonFields fields(*json, "closed sessions");
  const std::string hex = fields.Text("bits");
  if (const absl::Status read = fields.Finish(); !read.ok()) return Unreadable(key, read);
  SessionBits bits;
  if (hex == "all") return bits.set();
  if (hex.size() != kSessionBlock / 4) return Unreadable(key, "it has another number of bits");
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const std::size_t digit = kDigits.find(hex[i]);
    if (digit == std::string_view::npos) return Unreadable(key, "a digit is not hexadecimal");
    for (std::size_t bit = 0; bit < 4; ++bit) bits[4 * i + bit] = (digit >> bit & 1) != 0;
  }
  return bits;
}

absl::StatusOr<TrainerSession> TrainerFromJson(std::string_view key, std::string_view text) {
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Unreadable(key, json.status());
  JsonFields fields(*json, "session of a trainer");
  TrainerSession latest;
  latest.client_nonce = fields.Unsigned("client_nonce", 1, UINT64_MAX);
  latest.session = SessionId{fields.Unsigned("session", 1, UINT64_MAX)};
  if (const absl::Status read = fields.Finish(); !read.ok()) return Unreadable(key, read);
  return latest;
}

}  // namespace embla
