#include "bench/ceilings/messages.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <unordered_set>

#include "core/base/check.h"

namespace embla::bench {
namespace {

constexpr std::size_t kWorkRequests = 32;
constexpr std::size_t kWorkBytes = std::size_t{64} << 20;
constexpr float kGradient = 0.01f;

std::int64_t IdAt(std::span<const char> request, std::size_t i) {
  std::int64_t id = 0;
  std::memcpy(&id, request.data() + sizeof(RequestHeader) + i * sizeof(id), sizeof(id));
  return id;
}

float FloatAt(std::span<const char> reply, std::size_t i) {
  float value = 0.0f;
  std::memcpy(&value, reply.data() + i * sizeof(value), sizeof(value));
  return value;
}

void FillWork(const Load& load, std::mt19937_64& random, std::vector<char>& request) {
  const std::size_t gradients =
      load.work == Work::kStep ? std::size_t{load.ids} * load.dim : std::size_t{0};
  char* next = request.data() + sizeof(RequestHeader);
  EMBLA_CHECK(request.size() >= sizeof(RequestHeader) + load.ids * sizeof(std::int64_t) +
                                    gradients * sizeof(kGradient));
  std::unordered_set<std::int64_t> drawn;
  while (drawn.size() < load.ids) {
    const auto id = static_cast<std::int64_t>(random() % kWorkRows);
    if (!drawn.insert(id).second) continue;
    std::memcpy(next, &id, sizeof(id));
    next += sizeof(id);
  }
  for (std::size_t i = 0; i < gradients; ++i, next += sizeof(kGradient)) {
    std::memcpy(next, &kGradient, sizeof(kGradient));
  }
}

}  // namespace

std::vector<std::vector<char>> MakeRequests(const Load& load) {
  const RequestHeader header = {
      .reply_bytes = load.reply_bytes,
      .request_bytes = std::max(load.request_bytes, sizeof(RequestHeader)),
      .work = load.work,
      .ids = load.ids,
      .dim = load.dim,
  };
  std::mt19937_64 random(1);
  const std::size_t room =
      std::clamp(kWorkBytes / header.request_bytes, std::size_t{2}, kWorkRequests);
  std::vector<std::vector<char>> requests(load.work == Work::kNone ? 1 : room);
  for (std::vector<char>& request : requests) {
    request.resize(header.request_bytes);
    std::memcpy(request.data(), &header, sizeof(header));
    if (load.work != Work::kNone) FillWork(load, random, request);
  }
  return requests;
}

bool IsAnswered(const Load& load, std::span<const char> request, std::span<const char> reply) {
  switch (load.work) {
    case Work::kNone:
      return true;
    case Work::kGather: {
      const std::size_t last = load.ids - 1;
      return FloatAt(reply, 0) == static_cast<float>(IdAt(request, 0)) &&
             FloatAt(reply, last * load.dim + load.dim - 1) ==
                 static_cast<float>(IdAt(request, last));
    }
    case Work::kStep:
      return FloatAt(reply, 0) < 0.0f && FloatAt(reply, 1) < 0.0f;
  }
  return false;
}

}  // namespace embla::bench
