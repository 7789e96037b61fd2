// A unary call that is one task of the coordinator's thread.
#pragma once

#include <memory>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "core/wire/status_codec.h"
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

}  // namespace embla
