// Destination and format of a verb's result.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace embla::cli {

// Features of the terminal behind an open file.
struct Terminal {
  bool redraws = false;  // A line can be drawn over: a person looks at it.
  int columns = 80;
  int rows = 24;
  bool colours = false;  // https://no-color.org: never where NO_COLOR is set.

  static Terminal Of(int descriptor);
};

enum class Colour : int { kBold = 1, kRed = 31, kGreen = 32, kYellow = 33 };

// `text` between the codes of `colour`, or as it is where there are no colours.
std::string Coloured(std::string_view text, Colour colour, const Terminal& terminal);

struct Output {
  bool json = false;
  std::ostream& out;  // Not owned; outlives this object.
  Terminal terminal = {};

  // One JSON document and a line break. Text that is not UTF-8 is replaced, never an error.
  void PutJson(const nlohmann::ordered_json& document) const {
    out << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  }
  // On a terminal one line is drawn over and over; what comes next begins with "\n" or "\r".
  void ShowProgress(std::string_view line) const;
};

// "2026-11-24T02:14:29.123Z": the form of every time, for people and in JSON.
std::string TimeText(absl::Time time);
// The same in JSON; null for what never was.
nlohmann::ordered_json TimeView(absl::Time time);

// The program's output for a verb that failed. JSON: one object with the status' code, its message,
// the exit code and what to do about it.
std::string ErrorText(const absl::Status& status, bool json, const Terminal& terminal);

}  // namespace embla::cli
