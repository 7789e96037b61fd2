#include "tools/embla/top_cmd.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/embla/invocation.h"
#include "tools/embla/terminal_screen.h"
#include "tools/embla/top_view.h"

namespace embla::cli {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
// Keys are read between two looks: none takes longer than this.
constexpr absl::Duration kLookMax = absl::Seconds(3);

struct TopFlags {
  std::uint64_t interval_seconds = 2;
  bool once = false;
};

// Draws over what is shown; the last line of the terminal says how to leave.
std::string ScreenText(const LoadSections& sections, const Terminal& terminal) {
  const auto rows = static_cast<std::size_t>(std::max(terminal.rows - 1, 1));
  const auto columns = static_cast<std::size_t>(std::max(terminal.columns, 1));
  std::string text = "\x1b[H";
  for (const LoadLine& line : FitLines(sections, rows, columns)) {
    absl::StrAppend(&text, line.is_alarm ? Coloured(line.text, Colour::kRed, terminal) : line.text,
                    "\x1b[K\n");
  }
  return absl::StrCat(text, "q: quit\x1b[K\x1b[J");
}

void Show(const LoadFacts& facts, const std::string& lost, const Output& output) {
  if (output.json) {
    nlohmann::ordered_json view = LoadView(facts);
    view["no_answer"] = lost;
    return output.PutJson(view);
  }
  LoadSections sections = LoadText(facts);
  if (!lost.empty()) sections.front().push_back({absl::StrCat("no answer: ", lost), true});
  if (output.terminal.redraws) {
    output.out << ScreenText(sections, Terminal::Of(STDOUT_FILENO)) << std::flush;
    return;
  }
  for (const LoadLine& line : FitLines(sections, kUnlimited, kUnlimited)) {
    output.out << line.text << "\n";
  }
  output.out << std::flush;
}

absl::Status RunOnScreen(const Invocation& in, const TopFlags& flags) {
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<TerminalScreen> screen, TerminalScreen::Take());
  const TopPause pause = [&](const std::function<void()>& draw) {
    const absl::Time next = absl::Now() + absl::Seconds(flags.interval_seconds);
    TerminalScreen::Event event = screen->Await(next - absl::Now());
    for (; event == TerminalScreen::Event::kResized; event = screen->Await(next - absl::Now())) {
      draw();
    }
    return event != TerminalScreen::Event::kQuit;
  };
  return in.WithAdmin(std::min(absl::Seconds(in.timeout_seconds), kLookMax),
                      [&](client::Admin& admin) { return TopVerb(admin, pause, in.output()); });
}

absl::Status Run(const Invocation& in, const TopFlags& flags) {
  if (flags.interval_seconds == 0) return absl::InvalidArgumentError("--interval is at least 1");
  Output output = in.output();
  const bool is_live = output.terminal.redraws && ::isatty(STDIN_FILENO) != 0;
  if (is_live && !flags.once && !output.json) return RunOnScreen(in, flags);
  output.terminal.redraws = false;
  const TopPause pause = [&](const std::function<void()>&) {
    if (flags.once) return false;
    absl::SleepFor(absl::Seconds(flags.interval_seconds));
    if (!output.json) output.out << "\n";
    return true;
  };
  return in.WithAdmin([&](client::Admin& admin) { return TopVerb(admin, pause, output); });
}

}  // namespace

std::vector<Verb> TopVerbs() {
  const auto flags = std::make_shared<TopFlags>();
  return {{.name = "top",
           .help = "live: nodes and devices with memory and load, tables' rates, jobs",
           .arguments = {{"--interval", "seconds between two looks; default 2",
                          &flags->interval_seconds, false},
                         {"--once", "look once", &flags->once, false}},
           .run_alone = [flags](const Invocation& in) { return Run(in, *flags); }}};
}

absl::Status TopVerb(client::Admin& admin, const TopPause& pause, const Output& output) {
  std::optional<LoadFacts> facts;
  std::string lost;
  do {
    absl::StatusOr<LoadFacts> asked = LoadFacts::Ask(admin);
    if (!asked.ok() && !facts.has_value()) return asked.status();
    lost = Message(asked.status());
    if (asked.ok()) facts = *std::move(asked);
    Show(*facts, lost, output);
  } while (pause([&] { Show(*facts, lost, output); }));
  return absl::OkStatus();
}

}  // namespace embla::cli
