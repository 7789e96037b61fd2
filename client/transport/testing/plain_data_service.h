// A shard server written with nothing but the generated protobuf code, so that the client is tested
// against what any other implementation of proto/embla/v1 would say.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "core/base/mutex.h"
#include "embla/v1/data.grpc.pb.h"

namespace embla::client {

// Column c of row r of every table is r + c / 64; updates are only recorded.
class PlainDataService final : public v1::DataService::Service {
 public:
  static float Value(std::int64_t row, std::uint32_t column) {
    return static_cast<float>(row) + static_cast<float>(column) / 64.0f;
  }

  grpc::Status Lookup(grpc::ServerContext* context, const v1::LookupRequest* request,
                      v1::LookupReply* reply) override;
  grpc::Status Update(grpc::ServerContext* context, const v1::UpdateRequest* request,
                      v1::UpdateReply* reply) override;
  grpc::Status Stream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::StreamReply, v1::StreamRequest>* stream) override;
  grpc::Status ReadRows(grpc::ServerContext* context, const v1::ReadRowsRequest* request,
                        grpc::ServerWriter<v1::ReadRowsReply>* writer) override;

  // --- What tests do.

  // Calls and whole streams end with this from now on.
  void SetStatus(const grpc::Status& status);
  // Replies carry this many bytes too many, or too few.
  void SetExtraBytes(int bytes);
  // Requests wait for Release.
  void Hold();
  void Release();
  // A stream answers this many requests at a time, the last one first.
  void SetReverse(std::size_t count);
  void SetFrameBytes(std::size_t bytes);
  // Answers to updates say that these units did not step.
  void SetRefusedClaim(const v1::RefusedClaim& claim);
  // Lookups are answered that this unit has moved; in a stream after their first frame.
  void SetRefusedUnit(const v1::RefusedUnit& unit);
  // Streams end after this many requests, without an answer to the last.
  void SetRequestsPerStream(std::size_t count);

  int in_flight_max() const;
  // Bytes of the last request of a stream.
  std::size_t last_bytes() const;
  std::vector<v1::UpdateRequest> updates() const;
  int streams() const;
  // Waits until `count` requests have arrived since the start.
  void AwaitRequests(int count) const;

 private:
  grpc::Status Enter();
  void Leave();
  std::string Rows(const v1::LookupRequest& request) const;
  void Record(const v1::UpdateRequest& request, v1::UpdateReply& reply);
  // Whether lookups are refused; fills `reply` then.
  bool Refuse(v1::LookupReply& reply);
  void Write(grpc::ServerReaderWriter<v1::StreamReply, v1::StreamRequest>& stream,
             const v1::StreamRequest& request);

  mutable Mutex mu_;
  mutable CondVar changed_;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
  int extra_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  std::size_t reverse_ ABSL_GUARDED_BY(mu_) = 1;
  std::size_t frame_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t requests_per_stream_ ABSL_GUARDED_BY(mu_) = 0;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  int in_flight_max_ ABSL_GUARDED_BY(mu_) = 0;
  int arrived_ ABSL_GUARDED_BY(mu_) = 0;
  int streams_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t last_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<v1::UpdateRequest> updates_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::RefusedClaim> refused_claims_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::RefusedUnit> refused_units_ ABSL_GUARDED_BY(mu_);
};

// A listener; address "127.0.0.1:0" takes a free port.
class PlainServer {
 public:
  PlainServer(grpc::Service& service, const std::string& address);
  ~PlainServer();
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace embla::client
