#include "core/plan/table_options.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"

namespace embla {
namespace {

using Target = std::variant<float OptimizerSpec::*, WeightDecayMode OptimizerSpec::*,
                            BiasCorrection OptimizerSpec::*, Rounding TableSpec::*,
                            BoundsMode TableSpec::*, NanPolicy TableSpec::*,
                            TableDurability TableSpec::*, std::vector<std::string> TableSpec::*,
                            std::uint32_t TableSpec::*, float TableSpec::*>;
struct Option {
  std::string_view key;
  Target target;
};

constexpr std::array<Option, 15> kOptions = {{
    {"learning_rate", &OptimizerSpec::learning_rate},
    {"eps", &OptimizerSpec::eps},
    {"beta1", &OptimizerSpec::beta1},
    {"beta2", &OptimizerSpec::beta2},
    {"weight_decay", &OptimizerSpec::weight_decay},
    {"weight_decay_mode", &OptimizerSpec::weight_decay_mode},
    {"gradient_clip", &OptimizerSpec::gradient_clip},
    {"bias_correction", &OptimizerSpec::bias_correction},
    {"rounding", &TableSpec::rounding},
    {"bounds", &TableSpec::bounds},
    {"nan_policy", &TableSpec::nan_policy},
    {"durability", &TableSpec::durability},
    {"callers", &TableSpec::callers},
    {"sync_every_steps", &TableSpec::sync_every_steps},
    {"lookups_per_sample", &TableSpec::lookups_per_sample},
}};

absl::StatusOr<float> ParseFraction(std::string_view text) {
  float value = 0.0f;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value)) {
    return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToAbsl(text.substr(0, 40)), "\" is not a finite fp32 number"));
}

absl::StatusOr<std::uint32_t> ParseCount(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToAbsl(text.substr(0, 40)), "\" is not a number of 0 to 4294967295"));
}

OptimizerSpec& OwnerOf(TableSpec* spec, OptimizerSpec*) { return spec->optimizer; }
TableSpec& OwnerOf(TableSpec* spec, TableSpec*) { return *spec; }

template <typename Owner, typename Value>
absl::Status Assign(std::string_view text, Value Owner::*member, TableSpec* spec) {
  Value& value = OwnerOf(spec, static_cast<Owner*>(nullptr)).*member;
  if constexpr (std::is_enum_v<Value>) {
    EMBLA_ASSIGN_OR_RETURN(value, FromName<Value>(text));
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    value = absl::StrSplit(ToAbsl(text), ',', absl::SkipEmpty());
  } else if constexpr (std::is_same_v<Value, std::uint32_t>) {
    EMBLA_ASSIGN_OR_RETURN(value, ParseCount(text));
  } else {
    EMBLA_ASSIGN_OR_RETURN(value, ParseFraction(text));
  }
  return absl::OkStatus();
}

template <typename Owner, typename Value>
void Copy(TableSpec& from, Value Owner::*member, TableSpec* to) {
  Owner* const owner = nullptr;
  OwnerOf(to, owner).*member = OwnerOf(&from, owner).*member;
}

absl::Status SetOne(const std::string& key, const std::string& text, TableSpec* spec) {
  for (const Option& option : kOptions) {
    if (option.key != key) continue;
    return Annotate(
        std::visit([&](auto member) { return Assign(text, member, spec); }, option.target), key);
  }
  std::string allowed;
  for (const Option& option : kOptions) {
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", ToAbsl(option.key));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", key.substr(0, 40), "\" cannot be set on a table; allowed are ", allowed));
}

}  // namespace

absl::Status SetTableOptions(const std::map<std::string, std::string>& values, TableSpec* spec) {
  TableSpec changed = *spec;
  for (const auto& [key, text] : values) EMBLA_RETURN_IF_ERROR(SetOne(key, text, &changed));
  EMBLA_RETURN_IF_ERROR(changed.Validate());
  *spec = changed;
  return absl::OkStatus();
}

bool SameShape(const TableSpec& a, const TableSpec& b) {
  TableSpec from = b;
  TableSpec same = a;
  for (const Option& option : kOptions) {
    std::visit([&](auto member) { Copy(from, member, &same); }, option.target);
  }
  return same == b;
}

}  // namespace embla
