// The picture of `embla top`: a cluster's load, as lines for a terminal and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"

namespace embla::cli {

// All that is shown, asked for once.
struct LoadFacts {
  v1::ClusterStatus status;
  v1::ListNodesReply nodes;
  v1::ListJobsReply jobs;

  static absl::StatusOr<LoadFacts> Ask(client::Admin& admin);
};

// Nodes with devices and calls, tables with rates, jobs that are on or else the newest one.
nlohmann::ordered_json LoadView(const LoadFacts& facts);

struct LoadLine {
  std::string text = {};
  bool is_alarm = false;  // People have to see it.
};
// Parts of the picture, the most important lines of each first, after its title.
using LoadSections = std::vector<std::vector<LoadLine>>;
LoadSections LoadText(const LoadFacts& facts);

// The sections in at most `rows` lines of at most `columns` characters, with a blank line between
// them. A section that is too long ends in a line that says so; a short one leaves its room to the
// others. Control characters become '?': names and reasons come from elsewhere.
std::vector<LoadLine> FitLines(const LoadSections& sections, std::size_t rows, std::size_t columns);

}  // namespace embla::cli
