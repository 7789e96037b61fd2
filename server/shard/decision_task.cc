#include "server/shard/decision_task.h"

#include <utility>

namespace embla {

absl::Status DecisionTask::AppendToJournal(const Decision& decision, Durability level,
                                           std::shared_ptr<const void> memory) {
  return node_.journal->Append(decision, std::move(memory), level, MakeTicket());
}

absl::Status DecisionTask::AppendMarker(Durability level) {
  return node_.journal->AppendMarker(level, MakeTicket());
}

Journal::Done DecisionTask::MakeTicket() {
  ticket_ = std::make_shared<LogTicket>();
  return [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); };
}

}  // namespace embla
