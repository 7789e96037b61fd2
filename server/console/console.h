// The console: a page for people about the cluster as it is, and the documents that it shows
// (docs/console.md). Read-only. Served beside the metrics, by the coordinator that leads; a standby
// says who that is.
//
// It is asked by browsers that poll, any number of them, and must not disturb what it shows:
//   - the coordinator's thread copies facts, at most every kStateAge, for all that ask; everything
//     else is made from plans that do not change, on the threads that serve metrics;
//   - one of those threads at most waits for the coordinator, and no longer than kWait; a request
//     that comes meanwhile gets the document before, or 503.
//
// Over TLS the caller's role has to be one that may read plans, nodes and jobs; of the audit log,
// one that operates. In plaintext on loopback a request has to name a host of this machine, so that
// a page from elsewhere, under a name of its own that it points here, gets nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/metrics/web_route.h"
#include "server/console/console_json.h"
#include "server/console/plan_picture.h"
#include "server/rpc/coordinator_host.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class Console {
 public:
  static constexpr absl::Duration kStateAge = absl::Milliseconds(500);
  static constexpr absl::Duration kWait = absl::Seconds(1);

  // Says who leads, if this one does not.
  using FindLeader = std::function<StandbyFacts()>;

  explicit Console(FindLeader find_leader = nullptr) : find_leader_(std::move(find_leader)) {}

  // The routes of the page, its parts and its documents; they borrow this object.
  std::vector<WebRoute> Routes();

  // This coordinator leads, until Leave has returned: `host` is not owned, and outlives that.
  // `audit_log` is a file; empty: there is none.
  void Lead(CoordinatorHost& host, std::string audit_log) ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Document = std::shared_ptr<const std::string>;
  using Question = std::function<void(Coordinator& coordinator, absl::Time now)>;

  // The status of the answer is that of the HTTP reply.
  absl::StatusOr<std::string> State() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::string> Tables(const WebRequest& request);
  absl::StatusOr<std::string> Table(const WebRequest& request);
  absl::StatusOr<std::string> Device(const WebRequest& request);
  absl::StatusOr<std::string> Job(const WebRequest& request);
  absl::StatusOr<std::string> Audit() ABSL_LOCKS_EXCLUDED(mu_);

  WebRoute DocumentRoute(const std::string& name, bool is_audit,
                         std::function<absl::StatusOr<std::string>(const WebRequest&)> make);
  absl::StatusOr<std::string> MakeState();
  // Runs `question` on the coordinator's thread, and waits. Unavailable: there is none, or another
  // request waits for it, or it has not come to it within kWait: then it may run later.
  absl::Status Ask(Question question) ABSL_LOCKS_EXCLUDED(mu_);
  // Unavailable: this one does not lead.
  absl::StatusOr<PlanPtr> CurrentPlan() ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<const PlanSums> SumsOf(const PlanPtr& plan) ABSL_LOCKS_EXCLUDED(sums_mu_);

  const FindLeader find_leader_;  // Null: this coordinator is the only one.

  Mutex mu_;
  CondVar changed_;
  CoordinatorHost* host_ ABSL_GUARDED_BY(mu_) = nullptr;  // Null: this one does not lead.
  std::string audit_log_ ABSL_GUARDED_BY(mu_);
  bool is_asking_ ABSL_GUARDED_BY(mu_) = false;
  Document state_ ABSL_GUARDED_BY(mu_);  // The last one; null: there is none yet.
  absl::Time state_made_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();

  Mutex sums_mu_;
  std::shared_ptr<const PlanSums> sums_ ABSL_GUARDED_BY(sums_mu_);
};

// For tests: the answer to who may not see the console; OK: the caller may.
absl::Status CheckConsoleAccess(const WebRequest& request, bool is_audit);

}  // namespace embla
