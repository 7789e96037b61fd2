#include "tools/embla/yaml.h"

#include <exception>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "yaml-cpp/yaml.h"

namespace embla::cli {
namespace {

constexpr int kLevelsMax = 32;

nlohmann::json ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // Was quoted.
  if (text == "true" || text == "false") return text == "true";
  if (text == "null" || text == "~" || text.empty()) return nullptr;
  std::int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer)) return integer;
  std::uint64_t natural = 0;
  if (absl::SimpleAtoi(text, &natural)) return natural;
  double number = 0;
  // Only what starts like a number: "nan" and "inf" are words.
  if (text.find_first_of("0123456789") <= 2 && absl::SimpleAtod(text, &number)) return number;
  return text;
}

absl::StatusOr<nlohmann::json> ToJson(const YAML::Node& node, int level) {
  if (level > kLevelsMax) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kLevelsMax, " levels"));
  }
  if (node.IsScalar()) return ScalarToJson(node);
  if (node.IsSequence()) {
    nlohmann::json list = nlohmann::json::array();
    for (const YAML::Node& item : node) {
      EMBLA_ASSIGN_OR_RETURN(nlohmann::json value, ToJson(item, level + 1));
      list.push_back(std::move(value));
    }
    return list;
  }
  if (node.IsMap()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& entry : node) {
      const std::string key = entry.first.as<std::string>();
      if (object.contains(key)) {
        return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" stands twice"));
      }
      EMBLA_ASSIGN_OR_RETURN(object[key], ToJson(entry.second, level + 1));
    }
    return object;
  }
  return nlohmann::json(nullptr);
}

}  // namespace

absl::StatusOr<nlohmann::json> JsonFromYaml(const std::string& text) {
  try {
    return ToJson(YAML::Load(text), 0);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace embla::cli
