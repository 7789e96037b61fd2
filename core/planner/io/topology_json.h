// Machines as people write them: "2x8", or a JSON object. docs/planner_input.md has the fields.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/planner/io/fields.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

inline constexpr std::int64_t kDevicesMax = 65'536;

// Values that "HxD" leaves open: TorchRec's defaults.
struct TopologyDefaults {
  std::int64_t device_bytes = std::int64_t{32} << 30;
  std::int64_t host_bytes_per_device = std::int64_t{128} << 30;
};

// Whether the text looks like "HxD".
bool IsTopologyWord(std::string_view text);
// "2x8": hosts h0000 and h0001 with 8 devices each.
absl::StatusOr<Topology> TopologyFromWord(std::string_view word,
                                          const TopologyDefaults& defaults = {});
// An object, or a text as above.
absl::StatusOr<Topology> TopologyFromJson(const Document& json);

}  // namespace embla::planner
