// chaos-trainer: one trainer of a chaos run, a process of its own so that it can be killed in the
// middle of an update. It does what the board says (trainer_board.h).
#include <signal.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tests/fault/judged_table.h"
#include "tests/fault/trainer_board.h"
#include "tests/fault/training.h"

namespace embla::fault {
namespace {

struct Flags {
  TrainerOptions trainer;
  int trainers = 1;
  std::string directory;
};

void Define(CLI::App& app, Flags& flags) {
  app.add_option("--index", flags.trainer.index, "which of the trainers this is")->required();
  app.add_option("--trainers", flags.trainers, "how many there are")->required();
  app.add_option("--coordinator", flags.trainer.coordinator, "host:port")->required();
  app.add_option("--seed", flags.trainer.seed, "of what it draws")->required();
  app.add_option("--directory", flags.directory, "the run's, with board and ledgers")->required();
}

// Follows the board for ever.
class TrainerProcess {
 public:
  TrainerProcess(const Flags& flags, TrainerSlot& slot)
      : flags_(flags), slot_(slot), trainer_(flags.trainer, slot, [](const std::string& what) {
          // The run looks for such lines.
          std::cout << "DAMAGE " << what << std::endl;
        }) {}

  absl::Status Run() {
    std::optional<std::uint32_t> reached;
    while (true) {
      const std::uint32_t wanted = slot_.wanted.load();
      if (reached == wanted) {
        Wait(wanted);
        continue;
      }
      EMBLA_RETURN_IF_ERROR(Obey(TrainerCommand::Of(wanted)));
      reached = wanted;
      StoreAndWake(slot_.reached, wanted);
    }
  }

 private:
  // A trainer without progress for this long logs what it waits for.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  void Wait(std::uint32_t wanted) {
    const std::uint64_t before = slot_.acknowledged.load();
    const bool is_same = AwaitChange(slot_.wanted, wanted, kPatience) == wanted;
    if (!is_same || !TrainerCommand::Of(wanted).trains) return;
    if (slot_.acknowledged.load() == before) LogWarning("chaos", trainer_.Pending());
  }

  absl::Status Obey(const TrainerCommand& command) {
    trainer_.Pause();
    if (command.tables != tables_number_) {
      EMBLA_ASSIGN_OR_RETURN(
          tables_, OpenTables(static_cast<int>(command.tables), flags_.trainers, flags_.directory));
      tables_number_ = command.tables;
      for (const auto& table : tables_) table->ledger().LeaveAllOpen(flags_.trainer.index);
    }
    if (command.trains) trainer_.Train(&tables_);
    return absl::OkStatus();
  }

  const Flags flags_;
  TrainerSlot& slot_;  // Not owned; outlives this object.
  std::uint32_t tables_number_ = 0;
  JudgedTables tables_;
  Trainer trainer_;
};

absl::Status Main(const Flags& flags) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  EMBLA_ASSIGN_OR_RETURN(const TrainerBoard board,
                         TrainerBoard::Open(BoardPath(flags.directory), flags.trainers));
  return TrainerProcess(flags, board.slots()[flags.trainer.index]).Run();
}

}  // namespace
}  // namespace embla::fault

int main(int argc, char** argv) {
  CLI::App app("One trainer of a chaos run", "chaos-trainer");
  embla::fault::Flags flags;
  embla::fault::Define(app, flags);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = embla::fault::Main(flags);
  std::cerr << "chaos-trainer: " << embla::Message(status) << std::endl;
  return 1;
}
