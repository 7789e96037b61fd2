#include "tools/embla/state_cmd.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "server/etcd/etcd_address.h"
#include "server/etcd/etcd_client.h"
#include "server/etcd/etcd_election.h"
#include "server/etcd/etcd_state_store.h"
#include "server/state_store/file_state_store.h"
#include "server/state_store/state_directory.h"
#include "tools/embla/invocation.h"

namespace embla::cli {
namespace {

// Nobody prolongs it while a copy runs.
constexpr absl::Duration kLease = absl::Minutes(5);

// A prefix of etcd that this process alone uses: it leads, as a coordinator would.
class EtcdEnd {
 public:
  static absl::StatusOr<std::unique_ptr<EtcdEnd>> Open(const std::string& state,
                                                       const StateCopyFlags& flags) {
    EMBLA_ASSIGN_OR_RETURN(const EtcdAddress address, ParseEtcdAddress(state));
    auto end = std::make_unique<EtcdEnd>();
    EMBLA_ASSIGN_OR_RETURN(end->etcd_, MakeEtcdClient({.members = address.members,
                                                       .ca_file = flags.etcd_ca_file,
                                                       .cert_file = flags.etcd_cert_file,
                                                       .key_file = flags.etcd_key_file}));
    EtcdElectionOptions options{.prefix = EtcdLayout(address.prefix).Election(), .ttl = kLease};
    options.attempt = absl::Seconds(3);
    end->election_ = std::make_unique<EtcdElection>(*end->etcd_, Clock::Real(), options, "");
    absl::StatusOr<ElectionView> view = end->election_->Step();
    for (std::size_t i = 0; i < address.members.size() && IsWorthRetry(view.status()); ++i) {
      view = end->election_->Step();
    }
    EMBLA_RETURN_IF_ERROR(view.status());
    if (!view->leads) {
      return absl::FailedPreconditionError(absl::StrCat(
          "coordinators use ", state,
          ": stop all of them first; one that was killed is gone after its lease, in seconds"));
    }
    EtcdStoreOptions store{.prefix = address.prefix, .fence = view->fence};
    store.timeout = absl::Seconds(30);
    EMBLA_ASSIGN_OR_RETURN(end->store_, EtcdStateStore::Open(*end->etcd_, Clock::Real(), store));
    return end;
  }
  ~EtcdEnd() {
    store_.reset();
    if (election_ != nullptr) election_->Resign();
  }

  EtcdStateStore& store() { return *store_; }

 private:
  std::unique_ptr<EtcdKv> etcd_;
  std::unique_ptr<EtcdElection> election_;
  std::unique_ptr<EtcdStateStore> store_;
};

absl::StatusOr<StateSnapshot> SnapshotOf(const StateStore& store, const std::string& from) {
  EMBLA_ASSIGN_OR_RETURN(std::vector<StateEntry> entries, store.List(""));
  if (entries.empty()) return absl::NotFoundError(absl::StrCat(from, " has no cluster's state"));
  return StateSnapshot{store.revision(), std::move(entries)};
}

absl::StatusOr<StateSnapshot> ReadDirectory(const std::string& from) {
  // Opening makes a store where there is none.
  const absl::Status there = ReadStateFiles(from).status();
  if (absl::IsNotFound(there)) {
    return absl::NotFoundError(
        absl::StrCat(from, " is not the state directory of a coordinator: ", there.message()));
  }
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<FileStateStore> store, FileStateStore::Open(from));
  return SnapshotOf(*store, from);
}

absl::StatusOr<StateSnapshot> Read(const StateCopyFlags& flags) {
  if (!IsEtcdAddress(flags.from)) return ReadDirectory(flags.from);
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdEnd> end, EtcdEnd::Open(flags.from, flags));
  return SnapshotOf(end->store(), flags.from);
}

absl::Status Write(const StateSnapshot& snapshot, const StateCopyFlags& flags) {
  if (IsEtcdAddress(flags.to)) {
    EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdEnd> end, EtcdEnd::Open(flags.to, flags));
    return end->store().Import(snapshot);
  }
  std::string key;
  if (!flags.key_file.empty()) {
    EMBLA_ASSIGN_OR_RETURN(key, ReadFile(flags.key_file));
  }
  return WriteStateDirectory(snapshot, key, flags.to);
}

}  // namespace

std::vector<Verb> StateVerbs() {
  const auto flags = std::make_shared<StateCopyFlags>();
  return {
      {.name = "copy",
       .help = "copy it between a directory and etcd",
       .arguments =
           {{"from", "a directory or etcd://HOST[:PORT],.../PREFIX", &flags->from},
            {"to", "one that is empty", &flags->to},
            {"--cluster-key", "the key that a directory `to` gets", &flags->key_file, false},
            {"--etcd-ca", "file of the CA of etcd's members, for TLS", &flags->etcd_ca_file, false},
            {"--etcd-cert", "file of the certificate shown to etcd", &flags->etcd_cert_file, false},
            {"--etcd-key", "file of its key", &flags->etcd_key_file, false}},
       .run_alone = [flags](const Invocation& in) { return StateCopyVerb(*flags, in.output()); }}};
}

absl::Status StateCopyVerb(const StateCopyFlags& flags, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const StateSnapshot snapshot, Read(flags));
  EMBLA_RETURN_IF_ERROR(Write(snapshot, flags));
  const bool wants_key = IsEtcdAddress(flags.to) || flags.key_file.empty();
  if (output.json) {
    output.PutJson({{"from", flags.from},
                    {"to", flags.to},
                    {"revision", ToInt(snapshot.revision)},
                    {"keys", snapshot.entries.size()},
                    {"has_cluster_key", !wants_key}});
    return absl::OkStatus();
  }
  output.out << "copied " << snapshot.entries.size() << " keys at revision "
             << ToInt(snapshot.revision) << " from " << flags.from << " to " << flags.to << "\n";
  if (wants_key) {
    output.out << "the cluster's key is not in it: state the same --cluster-key to coordinators\n";
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
