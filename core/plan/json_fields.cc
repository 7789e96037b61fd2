#include "core/plan/json_fields.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"

namespace embla {
namespace {

// Refuses what nlohmann's own reader would accept silently: deep nesting and repeated fields. A
// parser callback; it ends the reading by an exception, which ParseJson catches.
class StrictReader {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      Require(depth < kJsonDepthMax, absl::StrCat("nested deeper than ", kJsonDepthMax));
      names_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      names_.pop_back();
    } else if (event == Event::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      Require(names_.back().insert(name).second,
              absl::StrCat("field \"", name.substr(0, 64), "\" is given twice"));
    }
    return true;
  }

 private:
  static void Require(bool holds, const std::string& problem) {
    if (!holds) throw std::runtime_error(problem);
  }

  std::vector<std::set<std::string>> names_;  // Names seen in each open container.
};

const Json& Empty(Json::value_t type) {
  static const Json* const array = new Json(Json::array());
  static const Json* const object = new Json(Json::object());
  return type == Json::value_t::array ? *array : *object;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text) {
  // The library also throws by itself, for instance for a number like 1e999.
  try {
    return Json::parse(text.begin(), text.end(), StrictReader());
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", error.what()));
  }
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

JsonFields::JsonFields(const Json& json, std::string_view what)
    : json_(json.is_object() ? json : Empty(Json::value_t::object)), what_(what) {
  if (!json.is_object()) {
    error_ = absl::InvalidArgumentError(
        absl::StrCat(what_, " is ", json.type_name(), ", not an object"));
  }
}

const Json* JsonFields::Take(std::string_view name) {
  taken_.emplace_back(name);
  const auto it = json_.find(std::string(name));
  if (it != json_.end()) return &*it;
  Fail(name, "is missing");
  return nullptr;
}

void JsonFields::Fail(std::string_view name, absl::string_view problem) {
  if (!error_.ok()) return;
  error_ =
      absl::InvalidArgumentError(absl::StrCat(what_, " field \"", ToAbsl(name), "\": ", problem));
}

std::int64_t JsonFields::Signed(std::string_view name, std::int64_t low, std::int64_t high) {
  const Json* const value = Take(name);
  if (value == nullptr) return low;
  // Positive numbers are stored unsigned; one above INT64_MAX must not wrap.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (fits) {
    const auto number = value->get<std::int64_t>();
    if (number >= low && number <= high) return number;
  }
  Fail(name, absl::StrCat("is not an integer of ", low, " to ", high));
  return low;
}

std::uint64_t JsonFields::Unsigned(std::string_view name, std::uint64_t low, std::uint64_t high) {
  const Json* const value = Take(name);
  if (value == nullptr) return low;
  if (value->is_number_unsigned()) {
    const auto number = value->get<std::uint64_t>();
    if (number >= low && number <= high) return number;
  }
  Fail(name, absl::StrCat("is not an integer of ", low, " to ", high));
  return low;
}

std::string JsonFields::Text(std::string_view name) {
  const Json* const value = Take(name);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  Fail(name, "is not a string");
  return {};
}

const Json& JsonFields::TakeContainer(std::string_view name, Json::value_t type) {
  const Json* const value = Take(name);
  if (value == nullptr) return Empty(type);
  if (value->type() == type) return *value;
  Fail(name, type == Json::value_t::array ? "is not an array" : "is not an object");
  return Empty(type);
}

const Json& JsonFields::Array(std::string_view name) {
  return TakeContainer(name, Json::value_t::array);
}

const Json& JsonFields::Object(std::string_view name) {
  return TakeContainer(name, Json::value_t::object);
}

bool JsonFields::Has(std::string_view name) const { return json_.contains(std::string(name)); }

void JsonFields::MaybeUnsigned(std::string_view name, std::uint64_t high, std::uint32_t* value) {
  if (Has(name)) *value = static_cast<std::uint32_t>(Unsigned(name, 0, high));
}

void JsonFields::MaybeUnsigned(std::string_view name, std::uint64_t* value) {
  if (Has(name)) *value = Unsigned(name, 0, UINT64_MAX);
}

void JsonFields::MaybeFraction(std::string_view name, float* value) {
  if (!Has(name)) return;
  const Json* const field = Take(name);
  if (!field->is_number()) return Fail(name, "is not a number");
  const auto number = field->get<float>();
  if (!std::isfinite(number)) return Fail(name, "is not a finite fp32 number");
  *value = number;
}

void JsonFields::MaybeFlag(std::string_view name, bool* value) {
  if (!Has(name)) return;
  const Json* const field = Take(name);
  if (!field->is_boolean()) return Fail(name, "is neither true nor false");
  *value = field->get<bool>();
}

void JsonFields::MaybeTexts(std::string_view name, std::vector<std::string>* value) {
  if (!Has(name)) return;
  value->clear();
  for (const Json& element : Array(name)) {
    if (!element.is_string()) return Fail(name, "is not an array of strings");
    value->push_back(element.get<std::string>());
  }
}

absl::Status JsonFields::Finish() const {
  if (!error_.ok()) return error_;
  for (const auto& [name, value] : json_.items()) {
    if (std::find(taken_.begin(), taken_.end(), name) != taken_.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(what_, " has the unknown field \"",
                                                   name.substr(0, 64), "\"; known are ",
                                                   absl::StrJoin(taken_, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace embla
