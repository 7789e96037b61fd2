#include "server/rpc/audit_log.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/server_context.h>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/metrics/names.h"
#include "core/tls/tls.h"
#include "core/wire/status_codec.h"
#include "embla/v1/admin.pb.h"
#include "server/rpc/access_rules.h"

namespace embla {
namespace {

using google::protobuf::FieldDescriptor;
using AnyMessage = google::protobuf::Message;

constexpr std::size_t kRequestBytesMax = std::size_t{64} << 10;

nlohmann::json Tell(const AnyMessage& request) {
  if (const std::size_t bytes = request.ByteSizeLong(); bytes > kRequestBytesMax) {
    return {{"bytes", bytes}};
  }
  const std::unique_ptr<AnyMessage> told(request.New());
  told->CopyFrom(request);
  std::vector<const FieldDescriptor*> fields;
  told->GetReflection()->ListFields(*told, &fields);
  for (const FieldDescriptor* const field : fields) {
    // A proof is as good as the session.
    if (field->type() == FieldDescriptor::TYPE_BYTES)
      told->GetReflection()->ClearField(told.get(), field);
  }
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(*told, &json);
  return nlohmann::json::parse(json, nullptr, false);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path,
                                                         Metrics* metrics) {
  EMBLA_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(file), metrics));
}

AuditLog::AuditLog(AppendFile file, Metrics* metrics)
    : failures_(metrics == nullptr
                    ? Counter()
                    : metrics->MakeCounter(MetricNamed("embla_audit_failures_total"))),
      file_(std::move(file)) {}

void AuditLog::Append(const std::string& line) {
  MutexLock lock(mu_);
  const absl::Status written = file_.Append(line + "\n");
  if (!written.ok()) {
    failures_.Add();
    if (!failed_) LogError("audit", "a line was not written reason=", embla::Message(written));
  }
  failed_ = !written.ok();
}

class AuditCalls::Call final : public grpc::experimental::Interceptor {
 public:
  Call(AuditLog& log, std::string_view method, grpc::ServerContextBase& context) : log_(log) {
    const std::optional<Identity> caller = CallerOf(context);
    line_["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
    line_["who"] = caller.has_value() ? UriOf(*caller) : "";
    line_["peer"] = context.peer();
    line_["method"] = method.substr(1);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    // Messages are pointers to the types that the methods have, whose first base is Message. A
    // request that could not be read is null (server/rpc/bounded_method.h).
    if (batch->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE)) {
      const auto* const request = static_cast<const AnyMessage*>(batch->GetRecvMessage());
      if (request != nullptr) line_["what"] = Tell(*request);
    }
    if (batch->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      const auto* const reply = static_cast<const AnyMessage*>(batch->GetSendMessage());
      if (reply != nullptr && reply->GetDescriptor() == v1::JobReply::descriptor()) {
        line_["job"] = static_cast<const v1::JobReply*>(reply)->job().id();
      }
    }
    if (batch->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      const absl::Status status = wire::FromGrpc(batch->GetSendStatus());
      line_["result"] = std::string(absl::StatusCodeToString(status.code()));
      line_["message"] = embla::Message(status);
      log_.Append(line_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    batch->Proceed();
  }

 private:
  AuditLog& log_;  // Not owned; outlives this object.
  nlohmann::ordered_json line_;
};

grpc::experimental::Interceptor* AuditCalls::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  const AccessRule* const rule = FindAccessRule(info->method());
  const bool is_unary = info->type() == grpc::experimental::ServerRpcInfo::Type::UNARY;
  if (rule == nullptr || !rule->changes || !is_unary) return nullptr;
  // Messages of data services come as bytes.
  const bool is_parsed = rule->method.starts_with("/embla.v1.AdminService/") ||
                         rule->method.starts_with("/embla.v1.CoordinatorService/");
  if (!is_parsed) return nullptr;
  return new Call(log_, rule->method, *info->server_context());
}

}  // namespace embla
