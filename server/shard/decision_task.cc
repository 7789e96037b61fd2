#include "server/shard/decision_task.h"

#include <utility>

namespace embla {

absl::Status DecisionTask::AppendToJournal(const Decision& decision, Durability level,
                                           std::shared_ptr<const void> memory) {
  ticket_ = std::make_shared<LogTicket>();
  return node_.journal->Append(
      decision, std::move(memory), level,
      [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); });
}

}  // namespace embla
