#include "server/shard/decision_task.h"

namespace embla {

absl::Status DecisionTask::AppendToJournal(const Decision& decision) {
  return node_.journal->Append(decision, MakeTicket());
}

absl::Status DecisionTask::AppendMarker() { return node_.journal->AppendMarker(MakeTicket()); }

Journal::Done DecisionTask::MakeTicket() {
  ticket_ = std::make_shared<LogTicket>();
  return [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); };
}

}  // namespace embla
