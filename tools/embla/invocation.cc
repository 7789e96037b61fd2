#include "tools/embla/invocation.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/include/embla/inspector.h"
#include "core/base/status_macros.h"
#include "tools/embla/node_cmd.h"
#include "tools/embla/table_create_cmd.h"
#include "tools/embla/verify_cmd.h"

namespace embla::cli {
namespace {

// The coordinator ends the creation of tables when a node fails or dies; as long as all of them
// work on it, for at most ten minutes, it waits, and so does the verb, whatever --timeout says.
constexpr absl::Duration kCreateTimeout = absl::Minutes(11);

// Between two looks at something that goes on.
void LookAgain() { absl::SleepFor(absl::Milliseconds(500)); }

}  // namespace

absl::Status Invocation::WithAdmin(const std::function<absl::Status(client::Admin&)>& verb) const {
  return WithAdmin(absl::Seconds(timeout_seconds), verb);
}

absl::Status Invocation::WithAdmin(absl::Duration timeout,
                                   const std::function<absl::Status(client::Admin&)>& verb) const {
  EMBLA_ASSIGN_OR_RETURN(
      const std::unique_ptr<client::Admin> admin,
      client::Admin::Connect(admin_address, timeout, client::Admin::IfAbsent::kFail, tls));
  return verb(*admin);
}

absl::Status Invocation::WithCreator(
    const std::function<absl::Status(client::Admin&)>& verb) const {
  return WithAdmin(std::max(absl::Seconds(timeout_seconds), kCreateTimeout), verb);
}

absl::Status Invocation::CreateTables() const {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<TableRequest> requests, RequestsFromFlags(table));
  return WithCreator([&](client::Admin& admin) {
    return TableCreateVerb(admin, requests, {.if_not_exists = if_not_exists}, output());
  });
}

absl::Status Invocation::SolvePlan() const {
  const absl::Time start = absl::Now();
  const auto seconds = [start] { return absl::ToDoubleSeconds(absl::Now() - start); };
  if (!solve_on_cluster) return PlanSolveVerb(solve, seconds, output());
  return WithAdmin([&](client::Admin& admin) {
    return PlanSolveOnClusterVerb(admin, solve, seconds, output());
  });
}

absl::Status Invocation::PlanTable() const {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<TableRequest> requests, RequestsFromFlags(table));
  if (stated.nodes > 0) return PlanTableOfflineVerb(requests, stated, output());
  return WithAdmin([&](client::Admin& admin) { return PlanTableVerb(admin, requests, output()); });
}

absl::Status Invocation::StartJob(const MakeRequest& make) const {
  EMBLA_ASSIGN_OR_RETURN(const v1::StartJobRequest request, make(job));
  return WithAdmin([&](client::Admin& admin) {
    return JobStartVerb(admin, request, wait, LookAgain, output());
  });
}

absl::Status Invocation::VerifyTable(const VerifyRequest& request) const {
  return WithAdmin([&](client::Admin& admin) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(
        const std::unique_ptr<client::Inspector> inspector,
        client::Inspector::Connect(admin_address, absl::Seconds(timeout_seconds), tls));
    return VerifyTableVerb(admin, *inspector, request, LookAgain, output());
  });
}

absl::Status Invocation::WithClient(
    const std::function<absl::Status(client::Client&)>& verb) const {
  client::ConnectOptions options;
  options.coordinator = coordinator_address;
  options.name = "embla";
  options.timeout = absl::Seconds(timeout_seconds);
  options.replica_group = lookup.replica_group;
  options.waits_for_coordinator = false;
  options.tls = tls;
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client,
                         client::Client::Connect(options));
  return verb(*client);
}

absl::Status Invocation::ForgetNode() const {
  return WithAdmin([&](client::Admin& admin) {
    return NodeForgetVerb(admin, job.node, lose_rows, wait, LookAgain, output());
  });
}

absl::Status Invocation::WatchJob() const {
  return WithAdmin(
      [&](client::Admin& admin) { return JobWatchVerb(admin, job_id, LookAgain, output()); });
}

}  // namespace embla::cli
