#include "tools/embla/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "tools/embla/exit_code.h"

namespace embla::cli {
namespace {

const char* WhatToDo(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return "correct the command line or the file; --help lists what is allowed";
    case absl::StatusCode::kUnavailable:
      return "check that the process runs and that the address is right, then try again";
    case absl::StatusCode::kDeadlineExceeded:
      return "look whether it was done nevertheless, then try again, with more --timeout";
    case absl::StatusCode::kNotFound:
      return "embla table ls, node ls and job ls list what there is";
    case absl::StatusCode::kAlreadyExists:
      return "take another name, or remove what has this one";
    case absl::StatusCode::kResourceExhausted:
      return "ask for less, or add nodes or memory";
    case absl::StatusCode::kFailedPrecondition:
      return "bring the cluster into the state that is asked for: embla node ls, job ls, verify";
    case absl::StatusCode::kUnimplemented:
      return "check --admin and --coordinator, and that all programs are of one version";
    case absl::StatusCode::kDataLoss:
      return "stop, keep the files, and read docs/runbook.md";
    default:
      return "read the message, and the logs of the coordinator and the nodes";
  }
}

}  // namespace

Terminal Terminal::Of(int descriptor) {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  const bool is_terminal = ::isatty(descriptor) != 0;
  const bool is_dumb = kind == nullptr || std::string_view(kind) == "dumb";
  const bool wants_none = no_colour != nullptr && *no_colour != '\0';
  Terminal terminal = {.redraws = is_terminal && !is_dumb,
                       .colours = is_terminal && !is_dumb && !wants_none};
  winsize size = {};
  if (is_terminal && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
    if (size.ws_row > 0) terminal.rows = size.ws_row;
  }
  return terminal;
}

std::string Coloured(std::string_view text, Colour colour, const Terminal& terminal) {
  if (!terminal.colours) return std::string(text);
  return absl::StrCat("\x1b[", static_cast<int>(colour), "m", ToAbsl(text), "\x1b[0m");
}

// A line that is longer than the terminal is wide would wrap, and stay.
void Output::ShowProgress(std::string_view line) const {
  if (!terminal.redraws) {
    out << line << std::endl;
    return;
  }
  const auto width = static_cast<std::size_t>(std::max(terminal.columns - 1, 1));
  out << "\r" << line.substr(0, width) << "\x1b[K" << std::flush;
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

nlohmann::ordered_json TimeView(absl::Time time) {
  if (time <= absl::UnixEpoch()) return nullptr;
  return TimeText(time);
}

std::string ErrorText(const absl::Status& status, bool json, const Terminal& terminal) {
  if (!json) {
    return absl::StrCat(Coloured("embla:", Colour::kRed, terminal), " ", status.ToString(), "\n");
  }
  const nlohmann::ordered_json error = {{"error",
                                         {{"code", absl::StatusCodeToString(status.code())},
                                          {"message", Message(status)},
                                          {"exit_code", static_cast<int>(ExitCodeOf(status))},
                                          {"what_to_do", WhatToDo(status.code())}}}};
  return error.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace embla::cli
