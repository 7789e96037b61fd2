// Real members of etcd on loopback, in a temporary directory, for tests. The program is etcd, of
// the package etcd-server; tests skip visibly where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/etcd/etcd_client.h"
#include "tests/testing/process_cluster.h"

namespace embla::testing {

class EtcdMembers {
 public:
  // Path of the program; empty: it is not installed.
  static std::string Program();

  enum class Wire : std::uint8_t { kPlaintext, kTls };
  // Returns when they have a leader. Over TLS, clients have to show a certificate of an authority
  // that is made here. Errors: DeadlineExceeded with the tails of their logs.
  static absl::StatusOr<std::unique_ptr<EtcdMembers>> Start(int members,
                                                            Wire wire = Wire::kPlaintext);
  ~EtcdMembers();

  // For --state.
  std::string Address(const std::string& prefix = "/embla") const;
  const std::vector<std::string>& clients() const { return clients_; }  // host:port
  // All that a client needs.
  EtcdClientOptions ClientOptions() const;
  const ChildProcess& member(int member) const { return processes_[member]; }

  void Kill(int member);
  // On the same ports and directory as before. Does not wait for it.
  absl::Status Restart(int member);
  // Waits until a member answers that the members have a leader.
  absl::Status AwaitLeader() const;

 private:
  explicit EtcdMembers(Wire wire);
  absl::Status MakeCertificates() const;
  absl::Status Launch(int members);
  std::string LogTails() const;

  const Wire wire_;
  std::string directory_;
  std::vector<std::string> clients_;
  std::vector<std::string> peers_;
  std::vector<ChildProcess> processes_;
};

}  // namespace embla::testing
