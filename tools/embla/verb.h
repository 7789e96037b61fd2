// A verb that asks the coordinator, as the file of its noun states it. main.cc binds it to the
// command line, so that a new one needs no line there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"

namespace embla::cli {

struct Argument {
  std::string name;  // "--trainer"; without dashes: by its place.
  std::string help;
  std::variant<bool*, std::string*, std::uint64_t*> value;  // Lives as long as the verb's `run`.
  bool is_required = true;
};

struct AdminVerb {
  std::string name;
  std::string help;
  std::vector<Argument> arguments = {};
  std::function<absl::Status(client::Admin&, const Output&)> run = {};
};

}  // namespace embla::cli
