// Unary calls that are one task of the coordinator's thread.
//
//   absl::Status GetJob(Coordinator&, const v1::GetJobRequest&, v1::JobReply&, absl::Time now);
//   MarkMethodCallback(12, OnCoordinator(host, GetJob));
#pragma once

#include <memory>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "core/wire/status_codec.h"
#include "server/rpc/bounded_method.h"
#include "server/rpc/coordinator_host.h"

namespace embla {

// `task` (Coordinator&, absl::Time) fills the reply, which like the request lives until the call is
// answered, and returns the call's status. It is not run for a caller that is gone by then.
template <typename Task>
grpc::ServerUnaryReactor* PostUnary(CoordinatorHost& host, grpc::CallbackServerContext& call,
                                    Task task) {
  grpc::ServerUnaryReactor* const reactor = call.DefaultReactor();
  const auto outcome = std::make_shared<absl::Status>();
  host.Post(
      [&call, outcome, task = std::move(task)](Coordinator& coordinator, absl::Time now) {
        *outcome = call.IsCancelled() ? absl::CancelledError("nobody waits for the answer")
                                      : absl::Status(task(coordinator, now));
      },
      [reactor, outcome](const absl::Status& durable) {
        reactor->Finish(wire::ToGrpc(durable.ok() ? *outcome : durable));
      });
  return reactor;
}

// A handler for MarkMethodCallback, which owns it, of a method that is `task` alone.
// `host` is not owned and outlives the handler.
template <typename Request, typename Reply>
grpc::internal::MethodHandler* OnCoordinator(CoordinatorHost& host,
                                             absl::Status (*task)(Coordinator&, const Request&,
                                                                  Reply&, absl::Time)) {
  return new BoundedHandler<Request, grpc::internal::CallbackUnaryHandler<Request, Reply>>(
      [&host, task](grpc::CallbackServerContext* call, const Request* request, Reply* reply) {
        return PostUnary(host, *call,
                         [task, request, reply](Coordinator& coordinator, absl::Time now) {
                           return task(coordinator, *request, *reply, now);
                         });
      },
      wire::ScanLimits{});
}

}  // namespace embla
