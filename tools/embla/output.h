// Where a verb's result goes, and in which form.
#pragma once

#include <ostream>
#include <string>

#include "nlohmann/json.hpp"

namespace embla::cli {

struct Output {
  bool json = false;
  std::ostream& out;  // Not owned; outlives this object.

  // One JSON document and a line break. Text that is not UTF-8 is replaced, never an error.
  void PutJson(const nlohmann::ordered_json& document) const {
    out << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  }
};

}  // namespace embla::cli
