// The build of this process, and the builds that it works with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace embla {

// Version and commit: "0.2.0+4fdbd01".
std::string_view BuildVersion();

// Several lines: program with version and commit; how it was built, for which protocol; the shared
// libraries that this process has loaded, by the names of their files, which have versions.
std::string DescribeBuild(std::string_view program);

// Raised by a change after which shard servers and coordinators of two builds do not work together:
// the coordinator refuses nodes that have another one. docs/runbook.md, Upgrades.
inline constexpr std::uint32_t kProtocolVersion = 2;

}  // namespace embla
