#include "server/etcd/etcd_client.h"

#include <atomic>
#include <chrono>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/callback_queue.h"
#include "core/wire/status_codec.h"
#include "embla/etcd/v3.grpc.pb.h"

namespace embla {
namespace {

namespace api = ::etcdserverpb;

constexpr int kPageKeys = 500;  // Values have up to 512 KiB.

// The first key behind all that begin with `prefix`; etcd takes one zero byte for "no end".
std::string EndOf(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  ++prefix.back();
  return prefix;
}

struct Member {
  std::string address;
  std::unique_ptr<api::KV::Stub> kv;
  std::unique_ptr<api::Lease::Stub> lease;
};

class EtcdClient final : public EtcdKv {
 public:
  explicit EtcdClient(std::vector<Member> members) : members_(std::move(members)) {}

  absl::StatusOr<EtcdListing> List(const std::string& prefix, absl::Duration timeout) override {
    EtcdListing listing;
    api::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(EndOf(prefix));
    request.set_limit(kPageKeys);
    api::RangeResponse response;
    do {
      response.Clear();
      EMBLA_RETURN_IF_ERROR(Call(timeout, [&](const Member& member, grpc::ClientContext& context) {
        return member.kv->Range(&context, request, &response);
      }));
      for (api::KeyValue& kv : *response.mutable_kvs()) {
        listing.entries.push_back({std::move(*kv.mutable_key()), std::move(*kv.mutable_value()),
                                   EtcdRevision{kv.create_revision()},
                                   EtcdRevision{kv.mod_revision()}});
      }
      if (request.revision() == 0) {
        listing.revision = EtcdRevision{response.header().revision()};
        request.set_revision(response.header().revision());  // For all further pages.
      }
      if (response.kvs_size() > 0) {
        request.set_key(listing.entries.back().key + std::string(1, '\0'));
      }
    } while (response.more() && response.kvs_size() > 0);
    return listing;
  }

  absl::StatusOr<EtcdOutcome> Commit(const EtcdTxn& txn, absl::Duration timeout) override {
    api::TxnRequest request;
    for (const EtcdCompare& compare : txn.compares) {
      api::Compare& message = *request.add_compare();
      message.set_key(compare.key);
      if (compare.of == EtcdCompare::Of::kCreated) {
        message.set_target(api::Compare::CREATE);
        message.set_create_revision(ToInt(compare.revision));
      } else {
        message.set_target(api::Compare::MOD);
        message.set_mod_revision(ToInt(compare.revision));
      }
    }
    for (const EtcdPut& write : txn.writes) AddTo(request, write);
    // etcd answers a transaction without operations from the member's own, perhaps old, state; one
    // that reads waits until the member has heard of all that was acknowledged before.
    if (txn.writes.empty() && !txn.compares.empty()) {
      request.add_success()->mutable_request_range()->set_key(txn.compares.front().key);
    }
    api::TxnResponse response;
    EMBLA_RETURN_IF_ERROR(Call(timeout, [&](const Member& member, grpc::ClientContext& context) {
      return member.kv->Txn(&context, request, &response);
    }));
    return EtcdOutcome{response.succeeded(), EtcdRevision{response.header().revision()}};
  }

  absl::Status Compact(EtcdRevision revision, absl::Duration timeout) override {
    api::CompactionRequest request;
    request.set_revision(ToInt(revision));
    api::CompactionResponse response;
    const absl::Status status =
        Call(timeout, [&](const Member& member, grpc::ClientContext& context) {
          return member.kv->Compact(&context, request, &response);
        });
    return absl::IsOutOfRange(status) ? absl::OkStatus() : status;  // It is compacted already.
  }

  absl::StatusOr<EtcdGrant> Grant(absl::Duration ttl, absl::Duration timeout) override {
    api::LeaseGrantRequest request;
    request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
    api::LeaseGrantResponse response;
    EMBLA_RETURN_IF_ERROR(Call(timeout, [&](const Member& member, grpc::ClientContext& context) {
      return member.lease->LeaseGrant(&context, request, &response);
    }));
    if (!response.error().empty()) return absl::UnavailableError(response.error());
    return EtcdGrant{EtcdLease{response.id()}, absl::Seconds(response.ttl())};
  }

  absl::StatusOr<absl::Duration> KeepAlive(EtcdLease lease, absl::Duration timeout) override {
    api::LeaseKeepAliveRequest request;
    request.set_id(ToInt(lease));
    api::LeaseKeepAliveResponse response;
    bool has_answer = false;
    EMBLA_RETURN_IF_ERROR(Call(timeout, [&](const Member& member, grpc::ClientContext& context) {
      const auto stream = member.lease->LeaseKeepAlive(&context);
      has_answer = stream->Write(request) && stream->WritesDone() && stream->Read(&response);
      if (has_answer) context.TryCancel();
      const grpc::Status status = stream->Finish();
      return has_answer ? grpc::Status::OK : status;
    }));
    if (!has_answer) return absl::UnavailableError("etcd has not answered for the lease");
    if (response.ttl() <= 0) return absl::NotFoundError("the lease is over");
    return absl::Seconds(response.ttl());
  }

  absl::Status Revoke(EtcdLease lease, absl::Duration timeout) override {
    api::LeaseRevokeRequest request;
    request.set_id(ToInt(lease));
    api::LeaseRevokeResponse response;
    return Call(timeout, [&](const Member& member, grpc::ClientContext& context) {
      return member.lease->LeaseRevoke(&context, request, &response);
    });
  }

 private:
  static void AddTo(api::TxnRequest& request, const EtcdPut& write) {
    api::RequestOp& operation = *request.add_success();
    if (!write.value) {
      operation.mutable_request_delete_range()->set_key(write.key);
      return;
    }
    api::PutRequest& put = *operation.mutable_request_put();
    put.set_key(write.key);
    put.set_value(*write.value);
    put.set_lease(ToInt(write.lease));
  }

  template <typename Rpc>
  absl::Status Call(absl::Duration timeout, const Rpc& rpc) {
    const std::size_t at = current_.load();
    const Member& member = members_[at % members_.size()];
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
    const absl::Status status = wire::FromGrpc(rpc(member, context));
    if (!status.ok()) {
      std::size_t expected = at;
      current_.compare_exchange_strong(expected, at + 1);
    }
    return Annotate(status, absl::StrCat("etcd ", member.address));
  }

  const std::vector<Member> members_;
  std::atomic<std::size_t> current_ = 0;
};

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const EtcdClientOptions& options) {
  if (options.ca_file.empty() && options.cert_file.empty() && options.key_file.empty()) {
    return grpc::InsecureChannelCredentials();
  }
  if (options.ca_file.empty() || options.cert_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "TLS to etcd wants a CA (--etcd-ca), and --etcd-cert and --etcd-key together or not at "
        "all");
  }
  grpc::SslCredentialsOptions tls;
  EMBLA_ASSIGN_OR_RETURN(tls.pem_root_certs, ReadFile(options.ca_file));
  if (!options.cert_file.empty()) {
    EMBLA_ASSIGN_OR_RETURN(tls.pem_cert_chain, ReadFile(options.cert_file));
    EMBLA_ASSIGN_OR_RETURN(tls.pem_private_key, ReadFile(options.key_file));
  }
  return grpc::SslCredentials(tls);
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdKv>> MakeEtcdClient(const EtcdClientOptions& options) {
  wire::KeepCallbackQueue();  // A connection is made also while no call waits.
  if (options.members.empty()) return absl::InvalidArgumentError("no member of etcd is stated");
  EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                         CredentialsOf(options));
  std::vector<Member> members;
  for (const std::string& address : options.members) {
    const auto channel = grpc::CreateCustomChannel(address, credentials, Arguments());
    members.push_back({address, api::KV::NewStub(channel), api::Lease::NewStub(channel)});
  }
  return std::make_unique<EtcdClient>(std::move(members));
}

}  // namespace embla
