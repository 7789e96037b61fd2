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

absl::Status ReadForgotten(std::string_view text, std::map<NodeId, std::string>& forgotten) {
  EMBLA_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonFields fields(json, "forgotten node");
  const NodeId node{static_cast<std::uint32_t>(fields.Unsigned("node", 1, UINT32_MAX))};
  forgotten[node] = fields.Text("name");
  return fields.Finish();
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

absl::StatusOr<std::map<NodeId, std::string>> LoadForgotten(const StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List("forgotten/"));
  std::map<NodeId, std::string> forgotten;
  for (const StateEntry& entry : entries) {
    const absl::Status read = ReadForgotten(entry.value, forgotten);
    if (!read.ok()) {
      return absl::DataLossError(
          absl::StrCat("state key ", entry.key, " is not readable: ", read.message()));
    }
  }
  return forgotten;
}

StateWrite ForgottenWrite(NodeId node, const std::string& name, bool is_forgotten) {
  StateWrite write{absl::StrFormat("forgotten/%010d", ToInt(node)), std::nullopt};
  if (is_forgotten) write.value = DumpJson({{"node", ToInt(node)}, {"name", name}});
  return write;
}

StateWrite DrainedWrite(NodeId node, bool is_drained) {
  StateWrite write{absl::StrFormat("drained/%010d", ToInt(node)), std::nullopt};
  if (is_drained) write.value = DumpJson({{"node", ToInt(node)}});
  return write;
}

}  // namespace embla
