#include "core/planner/problem/names.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla::planner {
namespace {

// Values 0 .. n-1 of an enum, by name.
template <typename Enum, std::size_t n>
absl::StatusOr<Enum> Parse(std::string_view name, std::string_view what) {
  std::string allowed;
  for (std::size_t i = 0; i < n; ++i) {
    const Enum value = static_cast<Enum>(i);
    if (NameOf(value) == name) return value;
    absl::StrAppend(&allowed, i == 0 ? "" : ", ", ToAbsl(NameOf(value)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", ToAbsl(what), " '", ToAbsl(name), "': use ", allowed));
}

template <typename Enum, std::size_t n>
std::string_view Word(Enum value, const std::string_view (&words)[n]) {
  const std::size_t i = static_cast<std::size_t>(value);
  return i < n ? words[i] : std::string_view();
}

}  // namespace

std::string_view NameOf(Kernel value) {
  return Word(value, {"device", "host_cached", "host", "ssd"});
}
std::string_view NameOf(Spread value) { return Word(value, {"any", "devices", "hosts"}); }
std::string_view NameOf(Pipeline value) {
  return Word(value, {"none", "sparse_dist", "prefetch", "inference"});
}
std::string_view NameOf(CostKind value) { return Word(value, {"torchrec", "embla"}); }
std::string_view NameOf(Tier value) { return Word(value, {"device", "host", "ssd"}); }
std::string_view NameOf(CostPart value) {
  return Word(value, {"forward_compute", "forward_comms", "backward_compute", "backward_comms",
                      "prefetch"});
}

absl::StatusOr<Kernel> KernelFromName(std::string_view name) {
  return Parse<Kernel, kKernels>(name, "kernel");
}
absl::StatusOr<Spread> SpreadFromName(std::string_view name) {
  return Parse<Spread, 3>(name, "spread");
}
absl::StatusOr<Pipeline> PipelineFromName(std::string_view name) {
  return Parse<Pipeline, 4>(name, "pipeline");
}
absl::StatusOr<CostKind> CostKindFromName(std::string_view name) {
  return Parse<CostKind, 2>(name, "cost model");
}

}  // namespace embla::planner
