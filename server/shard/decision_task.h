// A request that ends in a decision: decide, append, apply, answer. What was decided is in the
// journal before anything is changed, and the answer waits until it is written there.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/journal.h"
#include "server/shard/log_ticket.h"
#include "server/shard/request_task.h"

namespace embla {

class DecisionTask : public RequestTask {
 protected:
  using RequestTask::RequestTask;

  // On one device, while the others that take part stand still. The answer waits for `level`, the
  // highest of the tables that it is about. Requires: there is a journal. Errors: those of
  // Journal::Append.
  absl::Status AppendToJournal(const Decision& decision, Durability level);

  // Tells `done` of `result` when what was appended is written, or of the error; at once where
  // nothing was appended. Perhaps after the node is destroyed.
  template <typename Result, typename Done>
  void AnswerWhenWritten(Done done, Result result) const {
    AnswerWhenWritten(ticket_, std::move(done), std::move(result));
  }
  template <typename Result, typename Done>
  static void AnswerWhenWritten(const std::shared_ptr<LogTicket>& ticket, Done done,
                                Result result) {
    if (ticket == nullptr) return done(std::move(result));
    ticket->WhenReached(
        [done = std::move(done), result = std::move(result)](const absl::Status& written) mutable {
          if (!written.ok()) return done(written);
          done(std::move(result));
        });
  }
  const std::shared_ptr<LogTicket>& ticket() const { return ticket_; }

 private:
  std::shared_ptr<LogTicket> ticket_;  // Null: nothing was appended.
};

}  // namespace embla
