// The flags that every program has. Only programs include CLI11, so its types are parameters here.
#pragma once

#include <string>

#include "core/base/build_version.h"
#include "core/base/program_description.h"

namespace embla {
namespace detail {

template <typename Option>
OptionDescription DescribeOption(const Option& option) {
  OptionDescription described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  if (described.names.empty()) described.label = option.get_name(true);
  if (option.get_items_expected_max() != 0) described.type = option.get_type_name();
  described.default_value = option.get_default_str();
  described.environment = option.get_envname();
  described.help = option.get_description();
  described.is_required = option.get_required();
  described.takes_many = option.get_items_expected_max() > 1;
  return described;
}

// Describes what `--help` shows of `app`: options of the group "" are hidden.
template <typename App>
CommandDescription DescribeCommand(const App& app) {
  CommandDescription described{.name = app.get_name(),
                               .help = app.get_description(),
                               .footer = app.get_footer(),
                               .options = {},
                               .commands = {}};
  for (const auto* option : app.get_options()) {
    if (!option->get_group().empty()) described.options.push_back(DescribeOption(*option));
  }
  for (const App* sub : app.get_subcommands([](const App*) { return true; })) {
    if (!sub->get_name().empty()) {
      described.commands.push_back(DescribeCommand(*sub));
      continue;
    }
    // Options under a heading of their own, each with a `--help` that nobody is shown.
    for (const auto* option : sub->get_options()) {
      if (option != sub->get_help_ptr()) described.options.push_back(DescribeOption(*option));
    }
  }
  return described;
}

}  // namespace detail

// Adds `--version` and, hidden from help, `--help-json`, which prints all definitions of `app` and
// its commands as JSON. `Answer` is CLI::CallForVersion: the text that ends the parsing with 0.
template <typename Answer, typename App>
void AddProgramFlags(App& app) {
  app.set_version_flag(
      "--version", [&app] { return DescribeBuild(app.get_name()); },
      "Print version, commit, build and linked libraries, and exit");
  app.add_flag_callback("--help-json",
                        [&app] { throw Answer(ProgramJson(detail::DescribeCommand(app)), 0); })
      ->group("");
}

// Adds `--config FILE`.
template <typename App>
void AddConfigFile(App& app) {
  app.set_config("--config", "",
                 "File with more flags, each a line: listen = \"host:port\". Flags on the command "
                 "line come first")
      ->type_name("FILE");
  app.allow_config_extras(false);
}

}  // namespace embla
