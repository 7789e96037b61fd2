// A gRPC server that forwards every call to another one, and loses, repeats, delays and holds
// messages on the way as it is told. It knows no message type: calls are bytes.
//
//   caller ──► FaultProxy ──► upstream
//
// Faults of the network for a unary call: the request is lost, or the reply is lost after the
// request took effect (both: Unavailable to the caller), a second copy of the request arrives
// later, everything is late. So calls overtake each other. Within one stream messages stay in order
// and come once, as HTTP/2 promises; losing one breaks the stream. The messages about units on
// CoordinatorService.NodeLink are an exception: docs/migration.md says that they may be lost,
// repeated and reordered one by one, so they are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"

namespace embla::fault {

// Faults of a link's messages. Probabilities are per unary call or stream message.
struct LinkFaults {
  double drop_request = 0;  // The upstream never sees it.
  double drop_reply = 0;    // The caller never hears of it.
  double duplicate = 0;     // Unary requests, and what NodeLink says of units.
  double delay = 0;         // By up to delay_max.
  absl::Duration delay_max = absl::ZeroDuration();
  // Nothing passes on this way until the link is healed, and nobody is told.
  bool cuts_requests = false;
  bool cuts_replies = false;
  // Whether calls of a method (/package.service/method) have these faults; empty: all have.
  std::function<bool(const std::string& method)> concerns = {};
};

// The faults of one call or message.
struct Fate {
  bool drop_request = false;
  bool drop_reply = false;
  bool duplicate = false;
  absl::Duration delay = absl::ZeroDuration();
};

class ProxiedCall;

// Thread safety: every method may be called from any thread.
class FaultProxy final : public grpc::CallbackGenericService {
 public:
  // Hears of requests of unary calls, as bytes. Must not block.
  using Witness = std::function<void(const std::string& method, const grpc::ByteBuffer& request)>;

  // Listens on a free port of loopback.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(std::uint64_t seed, Witness witness);
  // Ends all calls.
  ~FaultProxy() override;

  const std::string& address() const { return address_; }
  // Calls that begin before this fail with Unavailable.
  void SetUpstream(const std::string& address);

  void SetFaults(const LinkFaults& faults);
  void Heal() { SetFaults({}); }
  // Fails the calls as if every connection was reset.
  void BreakCalls();
  // Sends `request` to the upstream, whoever sent it before; the reply is dropped.
  void Replay(const std::string& method, const grpc::ByteBuffer& request);

  // Describes the calls in flight, for messages about calls that hang.
  std::string Describe() const;

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

 private:
  friend class ProxiedCall;

  FaultProxy(std::uint64_t seed, Witness witness) : witness_(std::move(witness)), random_(seed) {}
  Fate DrawFate(const std::string& method);
  enum class Way : std::uint8_t { kRequests, kReplies };
  bool IsCut(Way way, const std::string& method) const;
  bool IsCutLocked(Way way, const std::string& method) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Concerns(method) &&
           (way == Way::kRequests ? faults_.cuts_requests : faults_.cuts_replies);
  }
  bool Concerns(const std::string& method) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !faults_.concerns || faults_.concerns(method);
  }
  // Runs `again` when the way may be no longer cut.
  void OnceHealed(Way way, const std::string& method, std::function<void()> again);
  std::shared_ptr<grpc::GenericStub> upstream() const;
  void Forget(std::uint64_t call);
  std::vector<std::shared_ptr<ProxiedCall>> Calls() const;

  const Witness witness_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;

  mutable Mutex mu_;
  CondVar all_over_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  LinkFaults faults_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> held_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<grpc::GenericStub> upstream_ ABSL_GUARDED_BY(mu_);
  std::uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::uint64_t, std::weak_ptr<ProxiedCall>> calls_ ABSL_GUARDED_BY(mu_);
  client::ThreadTimer timer_;  // Last: what it runs uses the others.
};

}  // namespace embla::fault
