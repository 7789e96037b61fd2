// A verb as the file of its noun states it. main.cc binds it to the command line, so that a new one
// needs no line there.
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

struct Invocation;

struct Argument {
  std::string name;  // "--trainer"; without dashes: by its place.
  std::string help;
  // Lives as long as the verb's `run`.
  std::variant<bool*, std::string*, std::uint64_t*, std::vector<std::string>*> value;
  bool is_required = true;
};

struct Verb {
  std::string name;
  std::string help;
  std::vector<Argument> arguments = {};
  // Asks the coordinator, which is there.
  std::function<absl::Status(client::Admin&, const Output&)> run = {};
  // In place of `run`: decides itself whom it asks.
  std::function<absl::Status(const Invocation&)> run_alone = {};
};

}  // namespace embla::cli
