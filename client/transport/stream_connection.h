// Data calls on one long-lived bidirectional stream, many in flight, matched by sequence number.
//
// A broken stream fails its calls with Unavailable; the next call opens another one (gRPC itself
// backs off between attempts to connect). Rows are copied once, from the received slices to where
// the request wants them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/transport/data_request.h"
#include "client/transport/timer.h"
#include "core/base/mutex.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class StreamConnection final : public DataConnection {
 public:
  // `timer` is not owned; outlives this object.
  StreamConnection(std::shared_ptr<grpc::Channel> channel, Timer& timer);
  // Waits until every call's done has run.
  ~StreamConnection() override;

  void Send(DataRequest request) override;
  void Close() override;

 private:
  class Stream;
  friend class Stream;

  // The open stream, or a new one. Null when closed.
  Stream* OpenStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireCalls();
  void OnStreamOver(Stream* stream);

  grpc::GenericStub stub_;
  Timer& timer_;

  Mutex mu_;  // Also guards the streams' members.
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  int finishing_ ABSL_GUARDED_BY(mu_) = 0;  // Threads that run done functions.
  // At most one is open; the others wait for gRPC's last word.
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  Alarm alarm_;  // Last: its function uses the others.
};

}  // namespace embla::client
