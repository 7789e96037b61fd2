// An option of a program whose values are names: what help and errors say of it is the list of the
// names, not the numbers behind them.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace embla {

// Adds to a CLI::App (or an option group) an option that sets `value`. Other names are refused in a
// sentence that lists all. `value` outlives the parsing. Only programs include CLI11, so its types
// are parameters here.
template <typename App, typename Value>
auto* AddNamedOption(App& app, const std::string& flags, Value& value,
                     const std::vector<std::pair<std::string, std::type_identity_t<Value>>>& names,
                     const std::string& description) {
  std::string list;
  for (const auto& [name, meaning] : names) list += (list.empty() ? "" : ", ") + name;
  const auto set = [&value, names](const std::string& text) {
    for (const auto& [name, meaning] : names) {
      if (name == text) value = meaning;
    }
  };
  const auto check = [names, list](const std::string& text) {
    for (const auto& [name, meaning] : names) {
      if (name == text) return std::string();
    }
    return "'" + text + "' is not one of " + list;
  };
  return app
      .template add_option_function<std::string>(
          flags, std::function<void(const std::string&)>(set), description)
      ->type_name("NAME")
      ->check(std::function<std::string(const std::string&)>(check), "{" + list + "}");
}

}  // namespace embla
