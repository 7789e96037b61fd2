#include "tests/testing/etcd_members.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/file_descriptor.h"
#include "core/base/status_macros.h"
#include "core/base/testing/loopback.h"

namespace embla::testing {
namespace {

namespace fs = std::filesystem;

// Ports that were free a moment ago: etcd takes no port 0.
std::vector<std::string> FreeAddresses(int count) {
  std::vector<FileDescriptor> held;
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = SocketName(AnyLoopbackPort());
    socklen_t bytes = sizeof(name);
    auto* const any = reinterpret_cast<sockaddr*>(&name);
    if (::bind(socket.number(), any, sizeof(name)) != 0) continue;
    ::getsockname(socket.number(), any, &bytes);
    addresses.push_back(absl::StrCat(LoopbackHost(), ":", ntohs(name.sin_port)));
    held.push_back(std::move(socket));
  }
  return addresses;
}

}  // namespace

std::string EtcdMembers::Program() {
  const char* const path = std::getenv("PATH");
  const std::vector<std::string> directories = absl::StrSplit(path == nullptr ? "" : path, ':');
  for (const std::string& directory : directories) {
    const std::string file = directory + "/etcd";
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

EtcdMembers::EtcdMembers(Wire wire) : wire_(wire) {
  std::string name = (fs::temp_directory_path() / "embla_etcd_XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) directory_ = name;
}

EtcdMembers::~EtcdMembers() {
  processes_.clear();
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

absl::StatusOr<std::unique_ptr<EtcdMembers>> EtcdMembers::Start(int members, Wire wire) {
  absl::Status status;
  for (int attempt = 0; attempt < 3; ++attempt) {  // A port may be taken by then.
    std::unique_ptr<EtcdMembers> started(new EtcdMembers(wire));
    status = started->Launch(members);
    if (status.ok()) return started;
  }
  return status;
}

absl::Status EtcdMembers::Launch(int members) {
  std::vector<std::string> addresses = FreeAddresses(2 * members);
  if (addresses.size() != 2 * static_cast<std::size_t>(members)) {
    return absl::UnavailableError("no free ports");
  }
  peers_.assign(addresses.begin() + members, addresses.end());
  addresses.resize(static_cast<std::size_t>(members));
  clients_ = std::move(addresses);
  processes_.resize(clients_.size());
  if (wire_ == Wire::kTls) EMBLA_RETURN_IF_ERROR(MakeCertificates());
  for (int i = 0; i < members; ++i) EMBLA_RETURN_IF_ERROR(Restart(i));
  return AwaitLeader();
}

// ca.pem, and member.pem with member.key for members and clients alike.
absl::Status EtcdMembers::MakeCertificates() const {
  constexpr char kCommands[] =
      "cd \"$0\" && new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes' && "
      "openssl req -x509 $new -keyout ca.key -out ca.pem -subj /CN=ca -days 1 && "
      "openssl req $new -keyout member.key -out member.csr -subj /CN=member && "
      "echo subjectAltName=IP:$1 > names && "
      "openssl x509 -req -in member.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 "
      "-extfile names -out member.pem";
  absl::StatusOr<ChildProcess> openssl = ChildProcess::Start(
      {"/bin/sh", "-c", kCommands, directory_, LoopbackHost()}, directory_ + "/openssl.log");
  if (!openssl.ok()) return openssl.status();
  if (const int code = openssl->Wait(); code != 0) {
    return absl::InternalError(absl::StrCat("openssl made no certificates: ", code));
  }
  return absl::OkStatus();
}

EtcdClientOptions EtcdMembers::ClientOptions() const {
  if (wire_ == Wire::kPlaintext) return {.members = clients_};
  return {.members = clients_,
          .ca_file = directory_ + "/ca.pem",
          .cert_file = directory_ + "/member.pem",
          .key_file = directory_ + "/member.key"};
}

absl::Status EtcdMembers::Restart(int member) {
  const auto at = static_cast<std::size_t>(member);
  std::vector<std::string> cluster;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    cluster.push_back(absl::StrCat("m", i, "=http://", peers_[i]));
  }
  const EtcdClientOptions files = ClientOptions();
  const bool is_plain = wire_ == Wire::kPlaintext;
  const std::string client = absl::StrCat(is_plain ? "http" : "https", "://", clients_[at]);
  const std::string peer = "http://" + peers_[at];
  std::vector<std::string> command = {Program(),
                                      "--name",
                                      absl::StrCat("m", member),
                                      "--data-dir",
                                      absl::StrCat(directory_, "/m", member),
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      peer,
                                      "--initial-advertise-peer-urls",
                                      peer,
                                      "--initial-cluster",
                                      absl::StrJoin(cluster, ","),
                                      "--logger",
                                      "zap",
                                      "--log-level",
                                      "error"};
  if (!is_plain) {
    command.insert(command.end(), {"--cert-file", files.cert_file, "--key-file", files.key_file,
                                   "--client-cert-auth", "--trusted-ca-file", files.ca_file});
  }
  absl::StatusOr<ChildProcess> process =
      ChildProcess::Start(command, absl::StrCat(directory_, "/m", member, ".log"));
  if (!process.ok()) return process.status();
  processes_[at] = *std::move(process);
  return absl::OkStatus();
}

void EtcdMembers::Kill(int member) {
  ChildProcess& process = processes_[static_cast<std::size_t>(member)];
  if (!process.running()) return;
  process.Signal(SIGKILL);
  process.Wait();
}

absl::Status EtcdMembers::AwaitLeader() const {
  absl::StatusOr<std::unique_ptr<EtcdKv>> client = MakeEtcdClient(ClientOptions());
  if (!client.ok()) return client.status();
  const absl::Time give_up = absl::Now() + kAwaitMax;
  absl::Status status;
  while (absl::Now() < give_up) {
    status = (*client)->List("/", absl::Seconds(1)).status();
    if (status.ok()) return status;
    for (const ChildProcess& process : processes_) {
      if (process.running() && process.AwaitEnd(absl::Milliseconds(20))) {
        return absl::AbortedError(absl::StrCat("a member of etcd has ended: ", LogTails()));
      }
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat("etcd has no leader: ", status.ToString(), LogTails()));
}

std::string EtcdMembers::LogTails() const {
  std::string text;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    std::ifstream file(absl::StrCat(directory_, "/m", i, ".log"));
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    absl::StrAppend(&text, "\n--- etcd m", i, "\n",
                    all.substr(all.size() > 1500 ? all.size() - 1500 : 0));
  }
  return text;
}

std::string EtcdMembers::Address(const std::string& prefix) const {
  return absl::StrCat("etcd://", absl::StrJoin(clients_, ","), prefix);
}

}  // namespace embla::testing
