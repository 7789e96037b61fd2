#include "server/rpc/access_rules.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla {
namespace {

using enum Role;

constexpr RoleSet kAnyone = {kCoordinator, kNode, kTrainer, kReader, kOperator, kAdmin};
constexpr RoleSet kReads = {kTrainer, kReader, kOperator, kAdmin};
constexpr RoleSet kFollowsPlan = {kNode, kTrainer, kReader, kOperator, kAdmin};
constexpr RoleSet kTrains = {kTrainer, kAdmin};
constexpr RoleSet kNodes = {kNode};
constexpr RoleSet kOperates = {kOperator, kAdmin};  // For what another call undoes.
constexpr RoleSet kDestroys = {kAdmin};             // For what nothing undoes.

constexpr bool kReading = false;
constexpr bool kChanging = true;

// By method.
constexpr AccessRule kRules[] = {
    {"/embla.v1.AdminService/AdoptTable", kOperates, kChanging},
    {"/embla.v1.AdminService/ControlJob", kOperates, kChanging},
    {"/embla.v1.AdminService/CreateTable", kOperates, kChanging},
    {"/embla.v1.AdminService/CreateTables", kOperates, kChanging},
    {"/embla.v1.AdminService/DropLeftovers", kDestroys, kChanging},
    {"/embla.v1.AdminService/DropTable", kDestroys, kChanging},
    {"/embla.v1.AdminService/FindSolvedPlan", kReads, kReading},
    {"/embla.v1.AdminService/ForgetNode", kDestroys, kChanging},
    {"/embla.v1.AdminService/GetClusterStatus", kReads, kReading},
    {"/embla.v1.AdminService/GetJob", kReads, kReading},
    {"/embla.v1.AdminService/GetPlan", kReads, kReading},
    {"/embla.v1.AdminService/GetPlanAt", kReads, kReading},
    {"/embla.v1.AdminService/GetPlanHistory", kReads, kReading},
    {"/embla.v1.AdminService/ListJobs", kReads, kReading},
    {"/embla.v1.AdminService/ListNodes", kReads, kReading},
    {"/embla.v1.AdminService/ListUnitOwners", kReads, kReading},
    // Takes seconds of the coordinator's processors.
    {"/embla.v1.AdminService/PlanTable", kOperates, kReading},
    {"/embla.v1.AdminService/PutSolvedPlan", kOperates, kChanging},
    {"/embla.v1.AdminService/SetLogLevel", kOperates, kChanging},
    {"/embla.v1.AdminService/SetTable", kOperates, kChanging},
    {"/embla.v1.AdminService/StartJob", kOperates, kChanging},
    {"/embla.v1.CoordinatorService/CloseSession", kReads, kChanging},
    {"/embla.v1.CoordinatorService/GetPlan", kFollowsPlan, kReading},
    {"/embla.v1.CoordinatorService/JoinSteps", kTrains, kChanging},
    {"/embla.v1.CoordinatorService/NodeLink", kNodes, kReading},
    {"/embla.v1.CoordinatorService/OpenSession", kReads, kChanging},
    {"/embla.v1.CoordinatorService/WatchPlan", kFollowsPlan, kReading},
    {"/embla.v1.DataService/Greet", kNodes, kReading},
    {"/embla.v1.DataService/Lookup", kReads, kReading},
    {"/embla.v1.DataService/Move", kNodes, kChanging},
    {"/embla.v1.DataService/ReadRows", kReads, kReading},
    {"/embla.v1.DataService/Replicate", kNodes, kChanging},
    // Carries lookups, and the updates of those who may call Update (server/rpc/stream_call.cc).
    {"/embla.v1.DataService/Stream", kReads, kChanging},
    {"/embla.v1.DataService/Sync", {kTrainer, kOperator, kAdmin}, kChanging},
    {"/embla.v1.DataService/Update", kTrains, kChanging},
    {"/embla.v1.InspectService/ExplainId", kReads, kReading},
    {"/embla.v1.InspectService/InspectTable", kReads, kReading},
    {"/embla.v1.InspectService/ReadEvictions", kReads, kReading},
    {"/embla.v1.InspectService/SurveyTable", kReads, kReading},
    {"/embla.v1.InspectService/SweepTable", kDestroys, kChanging},
    {"/grpc.health.v1.Health/Check", kAnyone, kReading},
    {"/grpc.health.v1.Health/Watch", kAnyone, kReading},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kOperates, kReading},
};
static_assert(std::ranges::is_sorted(kRules, {}, &AccessRule::method));

}  // namespace

std::string NamesOf(const RoleSet& roles) {
  std::string names;
  for (const Role role : kAllRoles) {
    if (roles.Has(role)) absl::StrAppend(&names, names.empty() ? "" : ", ", ToAbsl(NameOf(role)));
  }
  return names;
}

std::span<const AccessRule> AccessRules() { return kRules; }

const AccessRule* FindAccessRule(std::string_view method) {
  const auto* const found = std::ranges::lower_bound(kRules, method, {}, &AccessRule::method);
  return found != std::end(kRules) && found->method == method ? found : nullptr;
}

absl::Status CheckAccess(std::string_view method, const Identity& caller) {
  const AccessRule* const rule = FindAccessRule(method);
  if (rule == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(UriOf(caller), " may not call ",
                                                    absl::CHexEscape(ToAbsl(method.substr(0, 200))),
                                                    ": it has no rule"));
  }
  if (rule->roles.Has(caller.role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(UriOf(caller), " may not call ",
                                                  ToAbsl(method.substr(1)), ": it is for ",
                                                  NamesOf(rule->roles)));
}

absl::Status CheckAccess(std::string_view method, const std::optional<Identity>& caller) {
  return caller.has_value() ? CheckAccess(method, *caller) : absl::OkStatus();
}

absl::Status CheckTable(const std::optional<Identity>& caller, const Plan& plan, TableId table) {
  if (!caller.has_value() || (caller->role != kTrainer && caller->role != kReader)) {
    return absl::OkStatus();
  }
  const TablePlan* const found = plan.FindTable(table);
  if (found == nullptr || found->spec.callers.empty()) return absl::OkStatus();
  const std::vector<std::string>& callers = found->spec.callers;
  if (std::ranges::find(callers, caller->name) != callers.end()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      UriOf(*caller), " may not use table ", found->spec.name,
      ": its callers are others (embla table set ", found->spec.name, " callers=...)"));
}

absl::Status CheckName(const std::optional<Identity>& caller, std::string_view kind,
                       std::string_view name) {
  if (!caller.has_value() || caller->name == name) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(UriOf(*caller), " may not be ", ToAbsl(kind), " ",
                   absl::CHexEscape(ToAbsl(name.substr(0, 128))),
                   ": the name has to be that of its certificate or token"));
}

}  // namespace embla
