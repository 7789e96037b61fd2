#include "server/rpc/trainer_quotas.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/retry_hint.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/metrics/names.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

constexpr char kOthers[] = "*";
constexpr absl::Duration kRateTolerance = absl::Seconds(1);

// Empty: the caller has no quota.
std::string TrainerOf(const std::optional<Identity>& caller, const InFlightHolder& holder) {
  if (!caller.has_value()) {
    return absl::StrCat(holder.has_session ? "session " : "connection ", holder.id);
  }
  const bool has_quota = caller->role == Role::kTrainer || caller->role == Role::kReader;
  return has_quota ? caller->name : "";
}

absl::Status ReadQuota(const Json& json, const std::string& name, TrainerQuota& quota) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("the quota of ", name, " is not an object"));
  }
  JsonFields fields(json, absl::StrCat("the quota of ", name));
  for (const auto& [field, value] : {std::pair("rows_in_flight", &quota.rows_in_flight),
                                     std::pair("bytes_in_flight", &quota.bytes_in_flight),
                                     std::pair("rows_per_second", &quota.rows_per_second)}) {
    if (fields.Has(field)) *value = fields.Unsigned(field, 1, TrainerQuota::kNone);
  }
  return fields.Finish();
}

}  // namespace

absl::StatusOr<TrainerQuotaList> ParseTrainerQuotas(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json parsed, ParseJson(json));
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError("it is not a JSON object of quotas by name");
  }
  TrainerQuotaList quotas;
  for (const auto& [name, quota] : parsed.items()) {
    if (name != kOthers) EMBLA_RETURN_IF_ERROR(CheckIdentityName(name));
    EMBLA_RETURN_IF_ERROR(ReadQuota(quota, name, quotas[name]));
  }
  return quotas;
}

std::shared_ptr<TrainerQuotaFile> OpenTrainerQuotas(const std::string& file) {
  return std::make_shared<TrainerQuotaFile>(
      "rpc", "quotas of trainers", [file](const auto&) -> absl::StatusOr<TrainerQuotaFile::Ptr> {
        absl::StatusOr<std::string> text = ReadFile(file);
        absl::StatusOr<TrainerQuotaList> quotas =
            text.ok() ? ParseTrainerQuotas(*text) : text.status();
        if (quotas.ok()) return std::make_shared<const TrainerQuotaList>(*std::move(quotas));
        return absl::InvalidArgumentError(
            absl::StrCat("--trainer-quotas ", file, ": ", quotas.status().message()));
      });
}

TrainerQuotas::TrainerQuotas(std::shared_ptr<TrainerQuotaFile> file, Metrics* metrics)
    : file_(std::move(file)),
      refused_(metrics == nullptr
                   ? Counter()
                   : metrics->MakeCounter(MetricNamed("embla_quota_refusals_total"))) {}

absl::StatusOr<Hold> TrainerQuotas::Take(const std::optional<Identity>& caller,
                                         const InFlightHolder& holder, std::uint64_t rows,
                                         std::uint64_t bytes, absl::Time now) {
  if (file_ == nullptr) return Hold();
  const std::string trainer = TrainerOf(caller, holder);
  const TrainerQuotaFile::Ptr quotas = file_->Current(now);
  auto quota = quotas->find(trainer);
  if (quota == quotas->end()) quota = quotas->find(kOthers);
  if (trainer.empty() || quota == quotas->end()) return Hold();

  MutexLock lock(mu_);
  if (accounts_.size() >= forget_at_) ForgetIdle(now);
  Account& account = accounts_[trainer];
  if (absl::Status status = Check(trainer, quota->second, account, rows, bytes, now);
      !status.ok()) {
    refused_.Add();
    return status;
  }
  if (quota->second.rows_per_second != TrainerQuota::kNone) {
    const double seconds =
        static_cast<double>(rows) / static_cast<double>(quota->second.rows_per_second);
    account.served_at = std::max(account.served_at, now) + absl::Seconds(seconds);
  }
  if (holder.table != TableId{}) return Hold();
  ++account.requests;
  account.rows += rows;
  account.bytes += bytes;
  return Hold([this, trainer, rows, bytes] { GiveBack(trainer, rows, bytes); });
}

absl::Status TrainerQuotas::Check(const std::string& trainer, const TrainerQuota& quota,
                                  const Account& account, std::uint64_t rows, std::uint64_t bytes,
                                  absl::Time now) const {
  const auto refuse = [&](std::uint64_t max, const char* what) {
    return absl::ResourceExhaustedError(absl::StrCat("the quota of trainer ", trainer, ", ", max,
                                                     " ", what, " at this node, is used up"));
  };
  const absl::Duration ahead = account.served_at - now;
  if (quota.rows_per_second != TrainerQuota::kNone && ahead > kRateTolerance) {
    return WithRetryAfter(refuse(quota.rows_per_second, "rows a second"), ahead - kRateTolerance);
  }
  if (account.requests == 0) return absl::OkStatus();
  if (account.rows + rows > quota.rows_in_flight) {
    return refuse(quota.rows_in_flight, "rows in flight");
  }
  if (account.bytes + bytes > quota.bytes_in_flight) {
    return refuse(quota.bytes_in_flight, "bytes in flight");
  }
  return absl::OkStatus();
}

void TrainerQuotas::ForgetIdle(absl::Time now) {
  absl::erase_if(accounts_, [now](const auto& each) {
    return each.second.requests == 0 && each.second.served_at <= now;
  });
  forget_at_ = std::max<std::size_t>(2 * accounts_.size(), 64);
}

void TrainerQuotas::GiveBack(const std::string& trainer, std::uint64_t rows, std::uint64_t bytes) {
  MutexLock lock(mu_);
  Account& account = accounts_[trainer];
  --account.requests;
  account.rows -= rows;
  account.bytes -= bytes;
}

std::size_t TrainerQuotas::accounts() const {
  MutexLock lock(mu_);
  return accounts_.size();
}

}  // namespace embla
