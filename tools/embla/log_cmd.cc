#include "tools/embla/log_cmd.h"

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/plan/plan_json.h"
#include "tools/embla/invocation.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

constexpr char kPrefix[] = "LOG_LEVEL_";

absl::StatusOr<v1::LogLevel> LevelNamed(const std::string& name) {
  v1::LogLevel level = v1::LOG_LEVEL_UNSPECIFIED;
  const std::string on_the_wire = absl::StrCat(kPrefix, absl::AsciiStrToUpper(name));
  if (v1::LogLevel_Parse(on_the_wire, &level) && level != v1::LOG_LEVEL_UNSPECIFIED) return level;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not one of info, warning, error"));
}

// "-": a server of a build before has not said it.
std::string LevelText(v1::LogLevel level) {
  if (level == v1::LOG_LEVEL_UNSPECIFIED || !v1::LogLevel_IsValid(level)) return "-";
  return absl::AsciiStrToLower(v1::LogLevel_Name(level).substr(sizeof(kPrefix) - 1));
}

}  // namespace

std::vector<Verb> LogVerbs() {
  const auto words = std::make_shared<std::vector<std::string>>();
  return {{.name = "ls", .help = "the level of each server", .run = LogListVerb},
          {.name = "level",
           .help = "what servers log from now on, until they end: [SERVER] LEVEL",
           .arguments = {{"level",
                          "info, warning or error, and all above it; before it, a server: "
                          "coordinator or a node; default: all that are live",
                          words.get()}},
           .run_alone = [words](const Invocation& in) -> absl::Status {
             if (words->size() > 2) return absl::InvalidArgumentError("it is [SERVER] LEVEL");
             EMBLA_RETURN_IF_ERROR(LevelNamed(words->back()).status());
             const std::string server = words->size() == 2 ? words->front() : "";
             return in.WithAdmin([&](client::Admin& admin) {
               return LogLevelVerb(admin, server, words->back(), in.output());
             });
           }}};
}

absl::Status LogLevelVerb(client::Admin& admin, const std::string& server, const std::string& level,
                          const Output& output) {
  v1::SetLogLevelRequest request;
  EMBLA_ASSIGN_OR_RETURN(const v1::LogLevel wanted, LevelNamed(level));
  request.set_level(wanted);
  request.set_server(server);
  EMBLA_ASSIGN_OR_RETURN(const v1::SetLogLevelReply reply,
                         admin.Call<v1::SetLogLevelReply>(request));
  if (output.json) {
    output.PutJson({{"level", level},
                    {"servers", Json(reply.servers())},
                    {"left_out", Json(reply.left_out())}});
    return absl::OkStatus();
  }
  output.out << level << ": " << absl::StrJoin(reply.servers(), ", ") << "\n";
  if (!reply.left_out().empty()) {
    output.out << "down: " << absl::StrJoin(reply.left_out(), ", ") << "\n";
  }
  return absl::OkStatus();
}

absl::Status LogListVerb(client::Admin& admin, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::ClusterStatus status,
                         admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest()));
  EMBLA_ASSIGN_OR_RETURN(const v1::ListNodesReply nodes,
                         admin.Call<v1::ListNodesReply>(v1::ListNodesRequest()));
  std::vector<std::pair<std::string, std::string>> levels = {
      {"coordinator", LevelText(status.log_level())}};
  for (const v1::NodeStatus& node : nodes.nodes()) {
    EMBLA_ASSIGN_OR_RETURN(const NodeSpec spec, NodeSpecFromJson(node.node_json()));
    levels.emplace_back(spec.name, node.live() ? LevelText(node.log_level()) : "down");
  }
  if (output.json) {
    Json list = Json::array();
    for (const auto& [server, level] : levels)
      list.push_back({{"server", server}, {"level", level}});
    output.PutJson(list);
    return absl::OkStatus();
  }
  TextTable text({"server", "level"});
  for (const auto& [server, level] : levels) text.Add({server, level});
  output.out << text.Render();
  return absl::OkStatus();
}

}  // namespace embla::cli
