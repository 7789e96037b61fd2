#include "core/wire/plan_codec.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/plan_json.h"

namespace embla::wire {

v1::Plan ToMessage(const Plan& plan) {
  v1::Plan message;
  message.set_version(ToInt(plan.version()));
  message.set_cluster_id(plan.cluster_id());
  message.set_json(PlanToJson(plan));
  return message;
}

absl::StatusOr<PlanPtr> FromMessage(const v1::Plan& message) {
  absl::StatusOr<Plan> plan = PlanFromJson(message.json());
  if (!plan.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", message.version(), ": ", Message(plan.status())));
  }
  if (ToInt(plan->version()) != message.version() || plan->cluster_id() != message.cluster_id()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message of plan ", message.version(), " of cluster `", message.cluster_id(),
        "` holds plan ", ToInt(plan->version()), " of cluster `", plan->cluster_id(), "`"));
  }
  EMBLA_RETURN_IF_ERROR(plan->Validate());
  return std::make_shared<const Plan>(*std::move(plan));
}

}  // namespace embla::wire
