#include "server/rpc/stream_counts.h"

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

namespace embla {
namespace {

struct Free {
  void operator()(char* text) const { gpr_free(text); }
};

// channelz's view of a socket, in JSON with integers as strings; null: no such socket.
std::unique_ptr<char, Free> Describe(std::int64_t channelz_socket) {
  return std::unique_ptr<char, Free>(grpc_channelz_get_socket(channelz_socket));
}

// 0 when the field is missing, which is how channelz says 0.
std::int64_t Number(std::string_view json, std::string_view field) {
  const std::size_t at = json.find(field);
  if (at == std::string_view::npos) return 0;
  std::int64_t number = 0;
  const std::string_view digits = json.substr(at + field.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

// Between the numbers of two connections lie those that other channels of the process took.
constexpr std::int64_t kLookedAtMax = 100'000;

}  // namespace

std::optional<StreamCounts> CountStreams(std::int64_t channelz_socket) {
  const std::unique_ptr<char, Free> json = Describe(channelz_socket);
  if (json == nullptr) return std::nullopt;
  return StreamCounts{.started = Number(json.get(), "\"streamsStarted\":\""),
                      .answered = Number(json.get(), "\"streamsSucceeded\":\""),
                      .unanswered = Number(json.get(), "\"streamsFailed\":\"")};
}

void ChannelzNumbers::Find(std::unordered_map<std::string, std::int64_t>& wanted) {
  constexpr std::string_view kName = "\"name\":\"chttp2 ";
  std::size_t missing = wanted.size();
  const std::int64_t end = seen_ + kLookedAtMax;
  for (std::int64_t number = seen_ + 1; number <= end && missing > 0; ++number) {
    const std::unique_ptr<char, Free> json = Describe(number);
    if (json == nullptr) continue;
    std::string_view name = json.get();
    const std::size_t at = name.find(kName);
    if (at == std::string_view::npos) continue;
    name.remove_prefix(at + kName.size());
    const auto found = wanted.find(std::string(name.substr(0, name.find('"'))));
    if (found == wanted.end()) continue;
    if (found->second == 0) --missing;
    found->second = number;
    seen_ = number;
  }
}

}  // namespace embla
