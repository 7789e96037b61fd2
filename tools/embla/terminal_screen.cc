#include "tools/embla/terminal_screen.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "absl/time/clock.h"

namespace embla::cli {
namespace {

// The second screen of the terminal, without a cursor; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kQuitKeys = "qQ\x03\x04";

void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) return;  // Nobody looks any more.
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool ReadQuit() {
  char keys[64];
  const ssize_t bytes = ::read(STDIN_FILENO, keys, sizeof(keys));
  if (bytes <= 0) return true;
  const std::string_view pressed(keys, static_cast<std::size_t>(bytes));
  return pressed.find_first_of(kQuitKeys) != std::string_view::npos;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TerminalScreen>> TerminalScreen::Take() {
  std::unique_ptr<TerminalScreen> screen(new TerminalScreen());
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, signal);
  if (::pthread_sigmask(SIG_BLOCK, &signals, &screen->signals_before_) != 0 ||
      ::tcgetattr(STDIN_FILENO, &screen->before_) != 0) {
    return absl::UnavailableError("standard input is no terminal");
  }
  screen->signals_ = FileDescriptor(::signalfd(-1, &signals, SFD_CLOEXEC));
  termios keys = screen->before_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  keys.c_cc[VMIN] = 1;
  keys.c_cc[VTIME] = 0;
  if (!screen->signals_.is_open() || ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) != 0) {
    return absl::UnavailableError("the terminal takes no settings");
  }
  screen->is_taken_ = true;
  Write(kEnter);
  return screen;
}

TerminalScreen::~TerminalScreen() {
  if (is_taken_) {
    Write(kLeave);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  ::pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
}

TerminalScreen::Event TerminalScreen::Await(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                      {.fd = signals_.number(), .events = POLLIN, .revents = 0}};
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    if (::poll(ready, 2, static_cast<int>(absl::ToInt64Milliseconds(left))) == 0) {
      return Event::kTimeout;
    }
    if (ready[0].revents != 0 && ReadQuit()) return Event::kQuit;
    if (ready[1].revents == 0) continue;
    signalfd_siginfo signal;
    if (::read(signals_.number(), &signal, sizeof(signal)) != sizeof(signal)) continue;
    return signal.ssi_signo == SIGWINCH ? Event::kResized : Event::kQuit;
  }
}

}  // namespace embla::cli
