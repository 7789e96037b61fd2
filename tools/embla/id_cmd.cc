#include "tools/embla/id_cmd.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

Json ViewOf(const std::string& table, std::int64_t id, const client::IdExplanation& found) {
  Json view = {{"table", table},         {"id", id},
               {"node", found.node},     {"device", found.device},
               {"bucket", found.bucket}, {"has_row", found.row.has_value()}};
  if (found.row.has_value()) {
    view["row"] = *found.row;
    view["last_step"] = found.last_step;
    if (found.touches > 0) view["touches"] = found.touches;
    if (found.expires_at_step > 0) view["expires_at_step"] = found.expires_at_step;
  } else {
    view["seen"] = found.seen;
    if (found.shared_row.has_value()) view["shared_row"] = *found.shared_row;
  }
  view["group_residents"] = found.group_residents;
  if (found.evicted_reason.empty() && !found.row.has_value()) {
    // Also for an id that never came: its bucket may have forgotten.
    if (found.evictions_known_since == 0) {
      view["evicted"] = "never";
    } else {
      view["evicted"] = absl::StrCat("not since step ", found.evictions_known_since,
                                     "; what was before is not known any more");
    }
  }
  if (found.evicted_reason.empty()) return view;
  view["evicted"] = {{"reason", found.evicted_reason},
                     {"step", found.evicted_at_step},
                     {"last_step", found.evicted_last_step}};
  return view;
}

}  // namespace

absl::Status IdExplainVerb(client::Client& client, const std::string& table, std::int64_t id,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::IdExplanation found, client.ExplainId(table, id));
  const Json view = ViewOf(table, id, found);
  if (output.json) {
    output.PutJson(view);
    return absl::OkStatus();
  }
  TextTable text({"field", "value"});
  for (const auto& [key, value] : view.items()) {
    if (key == "evicted" && value.is_object()) {
      text.Add({"evicted", absl::StrCat(found.evicted_reason, " at step ", found.evicted_at_step,
                                        ", last touched at step ", found.evicted_last_step)});
    } else {
      text.Add({key, value.is_string() ? value.get<std::string>() : value.dump()});
    }
  }
  output.out << text.Render();
  return absl::OkStatus();
}

}  // namespace embla::cli
