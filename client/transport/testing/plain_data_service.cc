#include "client/transport/testing/plain_data_service.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/text.h"
#include "core/wire/callback_queue.h"

namespace embla::client {

grpc::Status PlainDataService::Enter() {
  MutexLock lock(mu_);
  ++arrived_;
  in_flight_max_ = std::max(in_flight_max_, ++in_flight_);
  changed_.NotifyAll();
  while (held_) changed_.Wait(mu_);
  return status_;
}

void PlainDataService::Leave() {
  MutexLock lock(mu_);
  --in_flight_;
}

std::string PlainDataService::Rows(const v1::LookupRequest& request) const {
  std::string rows;
  std::size_t next = 0;
  for (const v1::LookupPart& part : request.parts()) {
    for (std::uint32_t i = 0; i < part.ids_count(); ++i, ++next) {
      std::int64_t id = 0;
      std::memcpy(&id, request.ids().data() + next * sizeof(id), sizeof(id));
      for (std::uint32_t c = part.column_begin(); c < part.column_end(); ++c) {
        const float value = Value(id, c);
        rows.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
  }
  MutexLock lock(mu_);
  rows.resize(rows.size() + extra_bytes_);
  return rows;
}

grpc::Status PlainDataService::Lookup(grpc::ServerContext*, const v1::LookupRequest* request,
                                      v1::LookupReply* reply) {
  const grpc::Status status = Enter();
  if (status.ok() && !Refuse(*reply)) reply->set_rows(Rows(*request));
  Leave();
  return status;
}

grpc::Status PlainDataService::Update(grpc::ServerContext*, const v1::UpdateRequest* request,
                                      v1::UpdateReply* reply) {
  const grpc::Status status = Enter();
  Record(*request, *reply);
  Leave();
  return status;
}

void PlainDataService::Record(const v1::UpdateRequest& request, v1::UpdateReply& reply) {
  MutexLock lock(mu_);
  updates_.push_back(request);
  for (const v1::RefusedClaim& claim : refused_claims_) *reply.add_refused_claims() = claim;
}

void PlainDataService::SetRefusedClaim(const v1::RefusedClaim& claim) {
  MutexLock lock(mu_);
  refused_claims_ = {claim};
}

void PlainDataService::SetRefusedUnit(const v1::RefusedUnit& unit) {
  MutexLock lock(mu_);
  refused_units_ = {unit};
}

bool PlainDataService::Refuse(v1::LookupReply& reply) {
  MutexLock lock(mu_);
  if (refused_units_.empty()) return false;
  reply.set_plan_version(6);
  for (const v1::RefusedUnit& unit : refused_units_) *reply.add_refused() = unit;
  return true;
}

void PlainDataService::Write(grpc::ServerReaderWriter<v1::StreamReply, v1::StreamRequest>& stream,
                             const v1::StreamRequest& request) {
  const grpc::Status status = Enter();
  {
    MutexLock lock(mu_);
    last_bytes_ = request.ByteSizeLong();
  }
  v1::StreamReply reply;
  reply.set_sequence(request.sequence());
  reply.set_code(status.error_code());
  reply.set_message(status.error_message());
  if (!status.ok()) {
    stream.Write(reply);
  } else if (request.has_update()) {
    Record(request.update(), *reply.mutable_update());
    stream.Write(reply);
  } else {
    const std::string rows = Rows(request.lookup());
    std::size_t frame = rows.size();
    {
      MutexLock lock(mu_);
      if (frame_bytes_ > 0) frame = frame_bytes_;
    }
    std::size_t begin = 0;
    do {
      reply.mutable_lookup()->set_rows(rows.substr(begin, frame));
      begin += frame;
      v1::LookupReply refusal;
      const bool refuses = Refuse(refusal);
      reply.set_more(begin < rows.size() || refuses);
      stream.Write(reply);
      if (!refuses) continue;
      *reply.mutable_lookup() = refusal;
      reply.set_more(false);
      stream.Write(reply);
    } while (reply.more());
  }
  Leave();
}

grpc::Status PlainDataService::Stream(
    grpc::ServerContext*, grpc::ServerReaderWriter<v1::StreamReply, v1::StreamRequest>* stream) {
  std::size_t reverse = 1, requests_max = 0, requests = 0;
  {
    MutexLock lock(mu_);
    ++streams_;
    reverse = reverse_;
    requests_max = requests_per_stream_;
  }
  std::vector<v1::StreamRequest> batch;
  v1::StreamRequest request;
  while (stream->Read(&request)) {
    if (++requests == requests_max) return {grpc::StatusCode::ABORTED, "as the test wants it"};
    batch.push_back(request);
    if (batch.size() < reverse) continue;
    std::reverse(batch.begin(), batch.end());
    for (const v1::StreamRequest& next : batch) Write(*stream, next);
    batch.clear();
  }
  return grpc::Status::OK;
}

grpc::Status PlainDataService::ReadRows(grpc::ServerContext*, const v1::ReadRowsRequest* request,
                                        grpc::ServerWriter<v1::ReadRowsReply>* writer) {
  for (std::int64_t row = request->row_begin(); row < request->row_end(); ++row) {
    v1::ReadRowsReply reply;
    reply.set_row_block(absl::StrCat("row ", row, " of ", request->table_id()));
    if (!writer->Write(reply)) break;
  }
  MutexLock lock(mu_);
  return status_;
}

void PlainDataService::SetStatus(const grpc::Status& status) {
  MutexLock lock(mu_);
  status_ = status;
}

void PlainDataService::SetExtraBytes(int bytes) {
  MutexLock lock(mu_);
  extra_bytes_ = bytes;
}

void PlainDataService::Hold() {
  MutexLock lock(mu_);
  held_ = true;
}

void PlainDataService::Release() {
  MutexLock lock(mu_);
  held_ = false;
  changed_.NotifyAll();
}

void PlainDataService::SetReverse(std::size_t count) {
  MutexLock lock(mu_);
  reverse_ = count;
}

void PlainDataService::SetFrameBytes(std::size_t bytes) {
  MutexLock lock(mu_);
  frame_bytes_ = bytes;
}

void PlainDataService::SetRequestsPerStream(std::size_t count) {
  MutexLock lock(mu_);
  requests_per_stream_ = count;
}

int PlainDataService::in_flight_max() const {
  MutexLock lock(mu_);
  return in_flight_max_;
}

std::size_t PlainDataService::last_bytes() const {
  MutexLock lock(mu_);
  return last_bytes_;
}

std::vector<v1::UpdateRequest> PlainDataService::updates() const {
  MutexLock lock(mu_);
  return updates_;
}

int PlainDataService::streams() const {
  MutexLock lock(mu_);
  return streams_;
}

void PlainDataService::AwaitRequests(int count) const {
  MutexLock lock(mu_);
  while (arrived_ < count) changed_.Wait(mu_);
}

PlainServer::PlainServer(grpc::Service& service, const std::string& address) {
  wire::KeepCallbackQueue();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service);
  server_ = builder.BuildAndStart();
  EMBLA_CHECK(server_ != nullptr);
  address_ = address.starts_with("unix:") ? address : absl::StrCat("127.0.0.1:", port);
}

PlainServer::~PlainServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

}  // namespace embla::client
