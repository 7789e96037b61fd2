#include "server/shard/decision_task.h"

namespace embla {

absl::Status DecisionTask::AppendToJournal(const Decision& decision, Durability level) {
  ticket_ = std::make_shared<LogTicket>();
  return node_.journal->Append(
      decision, level, [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); });
}

}  // namespace embla
