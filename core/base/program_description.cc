#include "core/base/program_description.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/build_version.h"

namespace embla {
namespace {

nlohmann::ordered_json Json(const OptionDescription& option) {
  return {{"names", option.names},
          {"label", option.label},
          {"type", option.type},
          {"default", option.default_value},
          {"environment", option.environment},
          {"help", option.help},
          {"required", option.is_required},
          {"many", option.takes_many}};
}

nlohmann::ordered_json Json(const CommandDescription& command) {
  nlohmann::ordered_json options = nlohmann::ordered_json::array();
  for (const OptionDescription& option : command.options) options.push_back(Json(option));
  nlohmann::ordered_json commands = nlohmann::ordered_json::array();
  for (const CommandDescription& sub : command.commands) commands.push_back(Json(sub));
  return {{"name", command.name},
          {"help", command.help},
          {"footer", command.footer},
          {"options", std::move(options)},
          {"commands", std::move(commands)}};
}

}  // namespace

std::string ProgramJson(const CommandDescription& program) {
  nlohmann::ordered_json json = Json(program);
  json["version"] = BuildVersion();
  return json.dump(1);
}

}  // namespace embla
