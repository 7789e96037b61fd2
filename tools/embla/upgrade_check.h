// Whether the programs of a cluster may be replaced by those of another version now, and in which
// order. Pure: everything that was asked of the cluster comes in.
//
//   possible   when
//   rolling    protocol and formats are the same: one process after the other, while it trains
//   stopped    the protocol is another one: all programs are stopped, replaced and started
//   no         a format is another one, or nobody knows
//
// An issue stands against it at this moment: rows would be lost, or wait for somebody who is not
// there. docs/runbook.md, "Upgrades"; upgrade_check_test.cc plants each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/embla/doctor_cluster.h"
#include "tools/embla/release_formats.h"

namespace embla::cli {

enum class UpgradePath : std::uint8_t { kRolling = 1, kStopped, kImpossible };
std::string_view NameOf(UpgradePath path);

struct UpgradeIssue {
  std::string where;  // "node n3"
  std::string what;
  std::string next;  // The remedy.
};

struct UpgradeVerdict {
  UpgradePath path = UpgradePath::kRolling;
  std::vector<UpgradeIssue> issues;  // None: it can begin.
  std::vector<std::string> steps;    // In their order.
};

UpgradeVerdict CheckUpgrade(const ClusterFacts& facts, const Version& to,
                            std::span<const ReleaseFormats> known);

}  // namespace embla::cli
