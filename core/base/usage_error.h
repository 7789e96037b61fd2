// Message and exit code of a program for a command line that CLI11 refuses.
#pragma once

#include <string>
#include <vector>

#include "core/base/nearest_name.h"

namespace embla {

// The exit code of every program whose command line is wrong.
inline constexpr int kUsageExitCode = 2;

namespace detail {

// CLI::ExitCodes. CLI11 says at once what is missing, before it looks at what nobody knows.
inline constexpr int kRequiredError = 106;
inline constexpr int kExtrasError = 109;

inline std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

inline std::string DidYouMean(const std::string& nearest, const std::string& before) {
  return nearest.empty() ? "" : "; did you mean `" + before + nearest + "`?";
}

template <typename App>
std::vector<std::string> SubcommandNames(const App& app) {
  std::vector<std::string> names;
  for (const App* sub : app.get_subcommands([](const App*) { return true; })) {
    if (!sub->get_name().empty()) names.push_back(sub->get_name());  // Option groups have none.
  }
  return names;
}

// The long flags of `app`, of its groups and of the commands above it.
template <typename App>
std::vector<std::string> FlagNames(const App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    std::vector<const App*> parts =
        app->get_subcommands([](const App* sub) { return sub->get_name().empty(); });
    parts.push_back(app);
    for (const App* part : parts) {
      for (const auto* option : part->get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      }
    }
  }
  return names;
}

}  // namespace detail

// One sentence about what is wrong with the command line that `app` refused with `error`: which
// word or flag nobody knows, what was probably meant, what there is. CLI11's own sentence where
// that says more. Only programs include CLI11, so its types are parameters here.
template <typename App, typename ParseError>
std::string UsageMessage(const App& app, const ParseError& error) {
  const int code = error.get_exit_code();
  if (code != detail::kRequiredError && code != detail::kExtrasError) return error.what();
  const App* at = &app;
  std::string path = app.get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  const std::vector<std::string> left = app.remaining(true);
  for (const std::string& word : left) {
    if (!word.starts_with("-")) continue;
    const std::string flag = word.substr(0, word.find('='));
    return "unknown flag " + flag +
           detail::DidYouMean(NearestName(flag, detail::FlagNames(at)), "");
  }
  if (at->get_require_subcommand_min() > 0) {
    const std::vector<std::string> known = detail::SubcommandNames(*at);
    const std::string all = " " + path + " knows: " + detail::Joined(known);
    if (left.empty()) return path + " needs one more word;" + all;
    const std::string meant = detail::DidYouMean(NearestName(left.front(), known), path + " ");
    return "\"" + left.front() + "\" is unknown" + (meant.empty() ? ";" : meant) + all;
  }
  if (!left.empty()) return "\"" + left.front() + "\" was not expected after " + path;
  return error.what();
}

// Formats the error, with the program's name in front and where to read on.
template <typename App, typename ParseError>
std::string UsageText(const App& app, const ParseError& error) {
  return app.get_name() + ": " + UsageMessage(app, error) + "\nRun with --help for more.\n";
}

// Prints help or the version, or what is wrong, and returns the program's exit code.
template <typename App, typename ParseError>
int ExitAfterParse(App& app, const ParseError& error) {
  app.failure_message([](const App* refused, const auto& why) { return UsageText(*refused, why); });
  return app.exit(error) == 0 ? 0 : kUsageExitCode;
}

}  // namespace embla
