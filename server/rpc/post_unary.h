// A unary call that is one task of the coordinator's thread.
#pragma once

#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "core/wire/status_codec.h"
#include "server/rpc/coordinator_host.h"

namespace embla {

// `task` (Coordinator&, absl::Time) fills the reply, which like the request lives until then, and
// returns the call's status.
template <typename Task>
grpc::ServerUnaryReactor* PostUnary(CoordinatorHost& host, grpc::CallbackServerContext& call,
                                    Task task) {
  grpc::ServerUnaryReactor* const reactor = call.DefaultReactor();
  const absl::Status posted =
      host.Post([reactor, task = std::move(task)](Coordinator& coordinator, absl::Time now) {
        reactor->Finish(wire::ToGrpc(task(coordinator, now)));
      });
  if (!posted.ok()) reactor->Finish(wire::ToGrpc(posted));
  return reactor;
}

}  // namespace embla
