// Strict reading of JSON: each field is taken once, with its range; a field that nobody took, a
// field given twice and a document nested too deep are errors. Fractions are double, which is why
// core/plan/json_fields.h does not serve here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace embla::planner {

using Document = nlohmann::ordered_json;

// InvalidArgument says where the text stops being JSON, or which field is given twice.
absl::StatusOr<Document> ParseDocument(std::string_view text);

// Takes the fields of one object. Errors are kept: read everything, then call Finish once. A field
// that is absent leaves its value as it is.
class Fields {
 public:
  // `json` is borrowed for the life of this object. `what` names the object in messages.
  Fields(const Document& json, std::string_view what);

  bool Has(std::string_view name) const { return json_.contains(std::string(name)); }
  // An error if the field is absent.
  void Need(std::string_view name);

  void Integer(std::string_view name, std::int64_t low, std::int64_t high, std::int64_t* value);
  void Integer(std::string_view name, std::uint32_t low, std::uint32_t high, std::uint32_t* value);
  void Number(std::string_view name, double* value);
  void Bool(std::string_view name, bool* value);
  void Text(std::string_view name, std::string* value);
  void Texts(std::string_view name, std::vector<std::string>* value);
  void Integers(std::string_view name, std::vector<std::int64_t>* value);
  // An integer, or text as "32GiB" (KiB, MiB, GiB, TiB).
  void Bytes(std::string_view name, std::int64_t* value);
  // A word of an enum, as `parse` reads it.
  template <typename Enum>
  void Word(std::string_view name, absl::StatusOr<Enum> (*parse)(std::string_view), Enum* value) {
    std::string word;
    Text(name, &word);
    if (word.empty()) return;
    Set(name, parse(word), value);
  }
  template <typename Enum>
  void Words(std::string_view name, absl::StatusOr<Enum> (*parse)(std::string_view),
             std::vector<Enum>* value) {
    std::vector<std::string> words;
    Texts(name, &words);
    if (Has(name)) value->clear();
    for (const std::string& word : words) {
      Enum one{};
      Set(name, parse(word), &one);
      value->push_back(one);
    }
  }
  // The field as it is; null when absent.
  const Document& Any(std::string_view name);
  const Document& Array(std::string_view name);
  const Document& Object(std::string_view name);

  void Fail(std::string_view name, std::string_view problem);
  // The first error; else the first field that was not taken.
  absl::Status Finish() const;
  // The same for documents of which only a part is read.
  absl::Status FinishIgnoringOthers() const { return error_; }

 private:
  template <typename Enum>
  void Set(std::string_view name, const absl::StatusOr<Enum>& word, Enum* value) {
    if (word.ok()) {
      *value = *word;
    } else {
      Fail(name, std::string(word.status().message()));
    }
  }
  const Document* Take(std::string_view name);

  const Document& json_;
  const std::string what_;
  std::vector<std::string> taken_;
  absl::Status error_;
};

// "32GiB", "1024". InvalidArgument for anything else, or above 2^60.
absl::StatusOr<std::int64_t> BytesFromText(std::string_view text);

}  // namespace embla::planner
