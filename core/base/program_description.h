// A program's command line as data: what `--help` says, for those who make man pages and shell
// completion from it (deploy/pages.py).
#pragma once

#include <string>
#include <vector>

namespace embla {

struct OptionDescription {
  std::vector<std::string> names;  // "-o", "--output"; empty: an argument known by its place.
  std::string label;               // The name of such an argument.
  std::string type;                // "TEXT", "NAME:{table, json}"; empty: a flag without a value.
  std::string default_value;
  std::string environment;  // The variable that sets it; empty: none.
  std::string help;
  bool is_required = false;
  bool takes_many = false;
};

struct CommandDescription {
  std::string name;
  std::string help;
  std::string footer;
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
};

// One JSON object with the fields' names, as text; `version` is that of the build.
std::string ProgramJson(const CommandDescription& program);

}  // namespace embla
