#include "server/coordinator/drained_nodes.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

absl::StatusOr<NodeId> NodeFromJson(std::string_view text) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "drained node");
  const NodeId node{static_cast<std::uint32_t>(fields.Unsigned("node", 1, UINT32_MAX))};
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return node;
}

}  // namespace

absl::StatusOr<std::set<NodeId>> LoadDrained(const StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List("drained/"));
  std::set<NodeId> drained;
  for (const StateEntry& entry : entries) {
    const absl::StatusOr<NodeId> node = NodeFromJson(entry.value);
    if (!node.ok()) {
      return absl::DataLossError(
          absl::StrCat("state key ", entry.key, " is not readable: ", node.status().message()));
    }
    drained.insert(*node);
  }
  return drained;
}

StateWrite DrainedWrite(NodeId node, bool is_drained) {
  StateWrite write{absl::StrFormat("drained/%010d", ToInt(node)), std::nullopt};
  if (is_drained) write.value = DumpJson({{"node", ToInt(node)}});
  return write;
}

}  // namespace embla
