// The terminal of a program that draws all of it: keys come at once, unseen, and what was there
// before is there again afterwards.
//
// Meanwhile signals that end the program, or say that the terminal has another size, are not
// delivered but read. Make it before other threads are started: those would take the signals.
#pragma once

#include <termios.h>

#include <csignal>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/file_descriptor.h"

namespace embla::cli {

class TerminalScreen {
 public:
  // Takes the terminal of standard input and output. Unavailable: there is none.
  static absl::StatusOr<std::unique_ptr<TerminalScreen>> Take();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  // kQuit: q, Ctrl-C, the end of the input, or a signal that ends programs.
  enum class Event : std::uint8_t { kTimeout, kResized, kQuit };
  Event Await(absl::Duration timeout) const;

 private:
  TerminalScreen() = default;

  bool is_taken_ = false;
  termios before_ = {};
  sigset_t signals_before_ = {};
  FileDescriptor signals_;
};

}  // namespace embla::cli
