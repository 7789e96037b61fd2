#include "core/planner/io/fields.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla::planner {
namespace {

constexpr int kDepthMax = 16;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 60;

// Refuses what the library's own reader accepts silently: deep nesting and repeated fields. It ends
// the reading by an exception, which ParseDocument catches.
class StrictReader {
 public:
  bool operator()(int depth, Document::parse_event_t event, Document& parsed) {
    using Event = Document::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kDepthMax) throw std::runtime_error("nested too deep");
      names_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      names_.pop_back();
    } else if (event == Event::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names_.back().insert(name).second) {
        throw std::runtime_error("field \"" + name.substr(0, 64) + "\" is given twice");
      }
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> names_;  // Names seen in each open container.
};

const Document& EmptyArray() {
  static const Document* const empty = new Document(Document::array());
  return *empty;
}
const Document& EmptyObject() {
  static const Document* const empty = new Document(Document::object());
  return *empty;
}
const Document& Null() {
  static const Document* const null = new Document();
  return *null;
}

// Positive numbers are stored unsigned; one above INT64_MAX must not wrap.
bool IsInt64(const Document& value) {
  if (!value.is_number_integer()) return false;
  return !value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
}

}  // namespace

absl::StatusOr<Document> ParseDocument(std::string_view text) {
  // The library also throws by itself, for instance for a number like 1e999.
  try {
    return Document::parse(text.begin(), text.end(), StrictReader());
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", error.what()));
  }
}

absl::StatusOr<std::int64_t> BytesFromText(std::string_view text) {
  static constexpr std::pair<std::string_view, int> kUnits[] = {
      {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  std::string_view digits = text;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (!text.ends_with(unit)) continue;
    digits = text.substr(0, text.size() - unit.size());
    shift = bits;
  }
  double value = 0;
  if (!absl::SimpleAtod(ToAbsl(digits), &value) || !(value >= 0) ||
      !(value * static_cast<double>(std::int64_t{1} << shift) <= static_cast<double>(kBytesMax))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", ToAbsl(text.substr(0, 64)), "' is not a size: write 1024 or 32GiB (KiB, MiB, TiB)"));
  }
  return static_cast<std::int64_t>(value * static_cast<double>(std::int64_t{1} << shift));
}

Fields::Fields(const Document& json, std::string_view what)
    : json_(json.is_object() ? json : EmptyObject()), what_(what) {
  if (!json.is_object()) {
    error_ = absl::InvalidArgumentError(
        absl::StrCat(what_, " is ", json.type_name(), ", not an object"));
  }
}

void Fields::Fail(std::string_view name, std::string_view problem) {
  if (!error_.ok()) return;
  error_ = absl::InvalidArgumentError(
      absl::StrCat(what_, ", field \"", ToAbsl(name), "\": ", ToAbsl(problem)));
}

const Document* Fields::Take(std::string_view name) {
  taken_.emplace_back(name);
  const auto it = json_.find(std::string(name));
  return it == json_.end() ? nullptr : &*it;
}

void Fields::Need(std::string_view name) {
  if (!Has(name)) Fail(name, "is missing");
}

void Fields::Integer(std::string_view name, std::int64_t low, std::int64_t high,
                     std::int64_t* value) {
  const Document* const json = Take(name);
  if (json == nullptr) return;
  if (IsInt64(*json)) {
    const auto number = json->get<std::int64_t>();
    if (number >= low && number <= high) {
      *value = number;
      return;
    }
  }
  Fail(name, ToStd(absl::StrCat("is not an integer of ", low, " to ", high)));
}

void Fields::Integer(std::string_view name, std::uint32_t low, std::uint32_t high,
                     std::uint32_t* value) {
  std::int64_t wide = *value;
  Integer(name, std::int64_t{low}, std::int64_t{high}, &wide);
  *value = static_cast<std::uint32_t>(wide);
}

void Fields::Number(std::string_view name, double* value) {
  const Document* const json = Take(name);
  if (json == nullptr) return;
  if (json->is_number()) {
    *value = json->get<double>();
  } else {
    Fail(name, "is not a number");
  }
}

void Fields::Bool(std::string_view name, bool* value) {
  const Document* const json = Take(name);
  if (json == nullptr) return;
  if (json->is_boolean()) {
    *value = json->get<bool>();
  } else {
    Fail(name, "is neither true nor false");
  }
}

void Fields::Text(std::string_view name, std::string* value) {
  const Document* const json = Take(name);
  if (json == nullptr) return;
  if (json->is_string()) {
    *value = json->get<std::string>();
  } else {
    Fail(name, "is not text");
  }
}

void Fields::Texts(std::string_view name, std::vector<std::string>* value) {
  const Document* const json = Take(name);
  if (json == nullptr) return;
  value->clear();
  if (!json->is_array()) return Fail(name, "is not a list of texts");
  for (const Document& item : *json) {
    if (!item.is_string()) return Fail(name, "is not a list of texts");
    value->push_back(item.get<std::string>());
  }
}

void Fields::Integers(std::string_view name, std::vector<std::int64_t>* value) {
  const Document* const json = Take(name);
  if (json == nullptr) return;
  value->clear();
  if (!json->is_array()) return Fail(name, "is not a list of integers");
  for (const Document& item : *json) {
    if (!IsInt64(item)) return Fail(name, "is not a list of integers");
    value->push_back(item.get<std::int64_t>());
  }
}

void Fields::Bytes(std::string_view name, std::int64_t* value) {
  const Document& json = Any(name);
  if (json.is_null()) return;
  if (!json.is_string()) return Integer(name, 0, kBytesMax, value);
  const absl::StatusOr<std::int64_t> bytes = BytesFromText(json.get<std::string>());
  Set(name, bytes, value);
}

const Document& Fields::Any(std::string_view name) {
  const Document* const json = Take(name);
  return json == nullptr ? Null() : *json;
}

const Document& Fields::Array(std::string_view name) {
  const Document* const json = Take(name);
  if (json == nullptr) return EmptyArray();
  if (json->is_array()) return *json;
  Fail(name, "is not a list");
  return EmptyArray();
}

const Document& Fields::Object(std::string_view name) {
  const Document* const json = Take(name);
  if (json == nullptr) return EmptyObject();
  if (json->is_object()) return *json;
  Fail(name, "is not an object");
  return EmptyObject();
}

absl::Status Fields::Finish() const {
  if (!error_.ok()) return error_;
  for (const auto& item : json_.items()) {
    if (std::find(taken_.begin(), taken_.end(), item.key()) == taken_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what_, ": unknown field \"", item.key().substr(0, 64), "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace embla::planner
