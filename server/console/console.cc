#include "server/console/console.h"

#include <algorithm>
#include <fstream>
#include <ios>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/console/console_pages.h"
#include "server/rpc/access_rules.h"

namespace embla {
namespace {

// Calls that a caller has to be allowed to make over gRPC, to see the console, and to see who
// changed the cluster.
constexpr std::string_view kReads = "/embla.v1.AdminService/ListNodes";
constexpr std::string_view kOperates = "/embla.v1.AdminService/StartJob";

// Most lines of an audit log have some hundred bytes.
constexpr std::streamoff kAuditBytesMax = 256 << 10;

// Nothing is loaded from elsewhere, runs inline, or is shown within another page.
std::vector<std::pair<std::string, std::string>> Headers(bool is_document) {
  return {{"Content-Security-Policy",
           "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
           "object-src 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cache-Control", is_document ? "no-store" : "no-cache"}};
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kFailedPrecondition:
      return 421;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    default:
      return 503;
  }
}

// Errors are documents, too, so that the page can say what is wrong.
WebAnswer AnswerOf(const absl::StatusOr<std::string>& document) {
  WebAnswer answer{.type = "application/json", .headers = Headers(true)};
  if (document.ok()) {
    answer.body = *document;
    return answer;
  }
  answer.status = HttpStatusOf(document.status());
  answer.body = nlohmann::json{{"error", Message(document.status())}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  return answer;
}

// "127.0.0.1:9090", "[::1]:9090", "localhost"
bool NamesThisMachine(std::string_view host) {
  if (host.starts_with("[")) return true;  // An IPv6 address is no name.
  const std::string_view name = host.substr(0, host.find(':'));
  return name == "localhost" || name.find_first_not_of("0123456789.") == std::string_view::npos;
}

// The last `bytes_max` bytes of a file: others append to it meanwhile.
absl::StatusOr<std::string> ReadEnd(const std::string& path, std::streamoff bytes_max) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  const std::streamoff size = file.tellg();
  const std::streamoff bytes = std::min(size, bytes_max);
  std::string end(static_cast<std::size_t>(bytes), '\0');
  file.seekg(size - bytes);
  file.read(end.data(), bytes);
  end.resize(static_cast<std::size_t>(file.gcount()));
  return end;
}

template <typename Number>
absl::StatusOr<Number> NumberIn(const WebRequest& request, const char* name, Number default_value) {
  const std::string text = request.Parameter(name);
  Number number = default_value;
  if (!text.empty() && !absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is not a number"));
  }
  return number;
}

}  // namespace

absl::Status CheckConsoleAccess(const WebRequest& request, bool is_audit) {
  if (!request.is_over_tls) {
    if (!request.is_loopback || NamesThisMachine(request.host)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the console is here for localhost, not for the name that was asked for");
  }
  if (!request.caller.has_value()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the console asks for a certificate of the cluster, of a role that may read: ",
        NamesOf(FindAccessRule(kReads)->roles), "; docs/console.md; ", request.refusal));
  }
  const AccessRule& rule = *FindAccessRule(is_audit ? kOperates : kReads);
  if (rule.roles.Has(request.caller->role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(UriOf(*request.caller), " may not see ",
                                                  is_audit ? "the audit log" : "the console",
                                                  ": it is for ", NamesOf(rule.roles)));
}

std::vector<WebRoute> Console::Routes() {
  std::vector<WebRoute> routes;
  routes.push_back({.path = "/console", .answer = [](const WebRequest&) {
                      return WebAnswer{.status = 302, .headers = {{"Location", "/console/"}}};
                    }});
  for (const ConsolePage& page : ConsolePages()) {
    routes.push_back({.path = absl::StrCat("/console/", ToAbsl(page.name)),
                      .answer = [page](const WebRequest& request) {
                        const absl::Status access = CheckConsoleAccess(request, false);
                        if (!access.ok()) {
                          return WebAnswer{.status = HttpStatusOf(access),
                                           .body = Message(access) + "\n"};
                        }
                        return WebAnswer{.type = std::string(page.type),
                                         .body = std::string(page.content),
                                         .headers = Headers(false)};
                      }});
  }
  const auto add = [&](const char* name, auto make, bool is_audit = false) {
    routes.push_back(DocumentRoute(name, is_audit, std::move(make)));
  };
  add("state.json", [this](const WebRequest&) { return State(); });
  add("tables.json", [this](const WebRequest& request) { return Tables(request); });
  add("table.json", [this](const WebRequest& request) { return Table(request); });
  add("device.json", [this](const WebRequest& request) { return Device(request); });
  add("job.json", [this](const WebRequest& request) { return Job(request); });
  add(
      "audit.json", [this](const WebRequest&) { return Audit(); }, true);
  return routes;
}

WebRoute Console::DocumentRoute(
    const std::string& name, bool is_audit,
    std::function<absl::StatusOr<std::string>(const WebRequest&)> make) {
  return {.path = "/console/" + name,
          .answer = [is_audit, make = std::move(make)](const WebRequest& request) {
            const absl::Status access = CheckConsoleAccess(request, is_audit);
            return AnswerOf(access.ok() ? make(request) : access);
          }};
}

void Console::Lead(CoordinatorHost& host, std::string audit_log) {
  const MutexLock lock(mu_);
  host_ = &host;
  audit_log_ = std::move(audit_log);
}

void Console::Leave() {
  const MutexLock lock(mu_);
  // A request that waits is answered soon: by the host, or by kWait.
  while (is_asking_) changed_.Wait(mu_);
  host_ = nullptr;
  state_ = nullptr;
  state_made_ = absl::InfinitePast();
}

absl::Status Console::Ask(Question question) {
  struct Outcome {
    Mutex mu;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
  };
  CoordinatorHost* host = nullptr;
  {
    const MutexLock lock(mu_);
    if (host_ == nullptr) return absl::UnavailableError("this coordinator does not lead");
    if (is_asking_) return absl::UnavailableError("the coordinator is being asked: try again");
    is_asking_ = true;
    host = host_;
  }
  const auto outcome = std::make_shared<Outcome>();
  host->Post(std::move(question), [outcome](const absl::Status& status) {
    const MutexLock lock(outcome->mu);
    outcome->status = status;
    outcome->changed.NotifyAll();
  });
  absl::Status status =
      absl::UnavailableError("the coordinator is busy: it did not answer in time");
  {
    const MutexLock lock(outcome->mu);
    const absl::Time until = Clock::Real().Now() + kWait;
    for (absl::Time now = Clock::Real().Now(); !outcome->status && now < until;
         now = Clock::Real().Now()) {
      outcome->changed.WaitFor(outcome->mu, until - now);
    }
    if (outcome->status) status = *outcome->status;
  }
  const MutexLock lock(mu_);
  is_asking_ = false;
  changed_.NotifyAll();
  return status;
}

absl::StatusOr<std::string> Console::State() {
  {
    const MutexLock lock(mu_);
    if (host_ == nullptr && find_leader_ == nullptr) {
      return absl::UnavailableError("the coordinator is starting");
    }
    if (host_ == nullptr) return StandbyJson(find_leader_(), absl::Now());
    const bool is_fresh = Clock::Real().Now() - state_made_ < kStateAge;
    if (state_ != nullptr && (is_fresh || is_asking_)) return *state_;
  }
  return MakeState();
}

absl::StatusOr<std::string> Console::MakeState() {
  const auto facts = std::make_shared<ConsoleFacts>();
  EMBLA_RETURN_IF_ERROR(Ask([facts](Coordinator& coordinator, absl::Time now) {
    *facts = {.cluster = coordinator.Status(),
              .nodes = coordinator.Nodes(),
              .jobs = coordinator.NewestJobs(kConsoleJobsMax, now),
              .sessions = coordinator.FirstSessions(kConsoleSessionsMax),
              .plan = coordinator.GetPlan(),
              .now = now};
  }));
  std::string json = StateJson(*facts, *SumsOf(facts->plan), absl::Now());
  const MutexLock lock(mu_);
  if (host_ == nullptr) return json;
  state_ = std::make_shared<const std::string>(json);
  state_made_ = Clock::Real().Now();
  return json;
}

absl::StatusOr<PlanPtr> Console::CurrentPlan() {
  const MutexLock lock(mu_);
  if (host_ == nullptr) return absl::UnavailableError("this coordinator does not lead");
  return host_->plan();
}

std::shared_ptr<const PlanSums> Console::SumsOf(const PlanPtr& plan) {
  const MutexLock lock(sums_mu_);
  if (sums_ == nullptr || sums_->plan() != plan) sums_ = std::make_shared<const PlanSums>(plan);
  return sums_;
}

absl::StatusOr<std::string> Console::Tables(const WebRequest& request) {
  EMBLA_ASSIGN_OR_RETURN(const PlanPtr plan, CurrentPlan());
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t from, NumberIn<std::uint64_t>(request, "from", 0));
  return TablesJson(*SumsOf(plan), {.match = request.Parameter("match"), .from = from});
}

absl::StatusOr<std::string> Console::Table(const WebRequest& request) {
  EMBLA_ASSIGN_OR_RETURN(const PlanPtr plan, CurrentPlan());
  EMBLA_ASSIGN_OR_RETURN(const auto id, NumberIn<std::uint32_t>(request, "id", 0));
  EMBLA_ASSIGN_OR_RETURN(const auto copy, NumberIn<std::uint32_t>(request, "copy", 0));
  EMBLA_ASSIGN_OR_RETURN(const auto job, NumberIn<std::uint64_t>(request, "job", 0));
  std::optional<JobView> moving;
  if (job != 0) {
    const auto view = std::make_shared<absl::StatusOr<JobView>>(absl::UnknownError("not run"));
    const absl::Status asked = Ask([view, job](Coordinator& coordinator, absl::Time now) {
      *view = coordinator.GetJob(job, now);
    });
    // Without the job the picture is still worth to be seen.
    if (asked.ok() && view->ok()) moving = **std::move(view);
  }
  return TableJson(*SumsOf(plan), TableId{id}, copy, moving ? &*moving : nullptr);
}

absl::StatusOr<std::string> Console::Device(const WebRequest& request) {
  EMBLA_ASSIGN_OR_RETURN(const PlanPtr plan, CurrentPlan());
  EMBLA_ASSIGN_OR_RETURN(const auto node, NumberIn<std::uint32_t>(request, "node", 0));
  EMBLA_ASSIGN_OR_RETURN(const auto device, NumberIn<std::uint32_t>(request, "device", 0));
  return DeviceJson(*plan, DeviceId{NodeId{node}, device});
}

absl::StatusOr<std::string> Console::Job(const WebRequest& request) {
  EMBLA_ASSIGN_OR_RETURN(const PlanPtr plan, CurrentPlan());
  EMBLA_ASSIGN_OR_RETURN(const auto id, NumberIn<std::uint64_t>(request, "id", 0));
  const auto view = std::make_shared<absl::StatusOr<JobView>>(absl::UnknownError("not run"));
  EMBLA_RETURN_IF_ERROR(Ask([view, id](Coordinator& coordinator, absl::Time now) {
    *view = coordinator.GetJob(id, now);
  }));
  if (!view->ok()) return view->status();
  return JobJson(**view, *plan);
}

absl::StatusOr<std::string> Console::Audit() {
  std::string file;
  {
    const MutexLock lock(mu_);
    if (host_ == nullptr) return absl::UnavailableError("this coordinator does not lead");
    file = audit_log_;
  }
  if (file.empty()) {
    return absl::NotFoundError(
        "there is no audit log: start the coordinator with --audit-log FILE");
  }
  EMBLA_ASSIGN_OR_RETURN(const std::string lines, ReadEnd(file, kAuditBytesMax));
  return AuditJson(lines);
}

}  // namespace embla
