// Strict reading of JSON objects: each field is taken once, with its range; a field that nobody
// took, a field given twice and a document nested too deep are errors. No exception leaves.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace embla {

// Fields keep their order; fractions are fp32, so that 0.01f is written and read as 0.01.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                  std::int64_t, std::uint64_t, float>;

inline constexpr int kJsonDepthMax = 16;

// InvalidArgument says where the text stops being JSON, or which field is given twice.
absl::StatusOr<Json> ParseJson(std::string_view text);

// The same text for the same value; bytes that are not UTF-8 are replaced.
std::string DumpJson(const Json& json);

// Takes the fields of one object. Errors are kept: read everything, then call Finish once.
//
//   JsonFields fields(json, "node");
//   node.id = NodeId{fields.Unsigned("id", 1, UINT32_MAX)};
//   EMBLA_RETURN_IF_ERROR(fields.Finish());
class JsonFields {
 public:
  // `json` is borrowed for the life of this object. `what` names the object in messages.
  JsonFields(const Json& json, std::string_view what);

  // Required fields. After an error, the value is the lowest allowed one, or empty.
  std::int64_t Signed(std::string_view name, std::int64_t low, std::int64_t high);
  std::uint64_t Unsigned(std::string_view name, std::uint64_t low, std::uint64_t high);
  std::string Text(std::string_view name);
  const Json& Array(std::string_view name);
  const Json& Object(std::string_view name);

  // Optional fields; `value` stays as it is when the field is absent.
  bool Has(std::string_view name) const;
  void MaybeUnsigned(std::string_view name, std::uint64_t high, std::uint32_t* value);
  void MaybeUnsigned(std::string_view name, std::uint64_t* value);
  void MaybeFraction(std::string_view name, float* value);
  void MaybeFlag(std::string_view name, bool* value);
  void MaybeTexts(std::string_view name, std::vector<std::string>* value);
  // A word of an enum, as `parse` reads it (FromName of core/plan/names.h).
  template <typename Enum>
  void MaybeWord(std::string_view name, absl::StatusOr<Enum> (*parse)(std::string_view),
                 Enum* value) {
    if (!Has(name)) return;
    absl::StatusOr<Enum> word = parse(Text(name));
    if (word.ok()) {
      *value = *word;
    } else {
      Fail(name, word.status().message());
    }
  }

  // The first error; else the first field that was not taken.
  absl::Status Finish() const;

 private:
  const Json* Take(std::string_view name);
  const Json& TakeContainer(std::string_view name, Json::value_t type);
  void Fail(std::string_view name, absl::string_view problem);

  const Json& json_;
  const std::string what_;
  std::vector<std::string> taken_;
  absl::Status error_;
};

}  // namespace embla
