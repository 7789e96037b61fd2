// Each mistake of a machine, planted alone, is the only finding.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/file_descriptor.h"
#include "core/base/testing/loopback.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "core/tls/certificate.h"
#include "core/tls/certificate_authority.h"
#include "tools/embla/doctor_cmd.h"

namespace embla::cli {
namespace {

namespace fs = std::filesystem;

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TempDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kDay = absl::Hours(24);
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void Write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

// A machine, a coordinator and a node, of which nothing is wrong.
class World {
 public:
  World() {
    Write(root() + "/proc/meminfo", "MemTotal: 16777216 kB\nHugePages_Free: 0\n");
    Write(root() + "/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n");
    Write(root() + "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    Write(root() + "/proc/sys/vm/overcommit_memory", "0\n");
    Write(root() + "/proc/net/tcp", "  sl  local_address rem_address   st\n");
    Write(state() + "/log", "");
    Write(data() + "/identity", "");
    fs::permissions(state(), fs::perms(0750));
    fs::permissions(data(), fs::perms(0750));
    machine.root = root();
    machine.now = absl::Now();
    machine.descriptors_max = 1 << 20;
    machine.file_bytes_max = std::numeric_limits<std::uint64_t>::max();
    machine.resolves = [](const std::string& host) { return host != "nowhere"; };
    machine.disk_space = [](const std::string&) { return DiskSpace{kGiB, 2 * kGiB}; };
    machine.count_in_etcd = [](const EtcdClientOptions&, const std::string&) { return 3u; };
    coordinator = {{"listen", "127.0.0.1:7070"},
                   {"admin-listen", "127.0.0.1:7071"},
                   {"metrics-listen", "127.0.0.1:9101"},
                   {"state", state()}};
    shard = {{"listen", "10.0.0.1:7080"},
             {"metrics-listen", "127.0.0.1:9102"},
             {"advertise", "node1:7080"},
             {"coordinator", "127.0.0.1:7070"},
             {"name", "node1"},
             {"data-dir", data()},
             {"devices", "cpu:2"},
             {"memory-per-device", "6GiB"},
             {"tls-ca", root() + "/ca.pem"}};
    Write(root() + "/ca.pem", authority.certificate);
    shard["tls-cert"] = Issue(Role::kNode, "node1");
    flags.coordinator_config = "coordinator.conf";
    flags.shard_config = "shard.conf";
  }

  std::string root() const { return directory_.path() + "/root"; }
  std::string state() const { return directory_.path() + "/state"; }
  std::string data() const { return directory_.path() + "/data"; }

  // A file with the certificate and its key, for 30 days.
  std::string Issue(Role role, const std::string& name) const {
    const auto issued = IssueCertificate(authority, {"prod", role, name}, 30 * kDay, absl::Now());
    EXPECT_THAT(issued, IsOk());
    const std::string path = root() + "/" + name + "-" + std::string(NameOf(role)) + ".pem";
    EXPECT_THAT(AtomicWriteFile(path, issued->key + issued->certificate), IsOk());
    return path;
  }
  void Revoke(const std::vector<std::string>& serials, absl::Duration lifetime) {
    const auto list = MakeRevocationList(authority, serials, lifetime, absl::Now());
    ASSERT_THAT(list, IsOk());
    Write(root() + "/revoked/list.pem", *list);
    shard["tls-revoked"] = root() + "/revoked";
  }
  // A process that listens on the port.
  void Listen(int port, const std::string& program) const {
    Write(root() + "/proc/net/tcp",
          absl::StrFormat("  sl  local_address rem_address   st\n"
                          "   0: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 "
                          "00000000     0        0 4711 1 0000000000000000\n",
                          port));
    Write(root() + "/proc/77/comm", program + "\n");
    fs::create_directories(root() + "/proc/77/fd");
    fs::create_symlink("socket:[4711]", root() + "/proc/77/fd/3");
  }

  Report Examine() const {
    const ReadConfig read =
        [this](const std::string& path) -> absl::StatusOr<std::map<std::string, std::string>> {
      if (path == "coordinator.conf") return coordinator;
      if (path == "shard.conf") return shard;
      return absl::NotFoundError(path);
    };
    Report report;
    ExamineMachine(machine, flags, read, tls, "127.0.0.1:7071", report);
    return report;
  }
  std::vector<std::string> Found() const {
    std::vector<std::string> names;
    const Report report = Examine();
    for (const Finding& finding : report.findings()) names.emplace_back(finding.check.name);
    return names;
  }

  const CertificateAndKey authority = *MakeAuthority("prod", 3650 * kDay, absl::Now());
  ThisMachine machine;
  std::map<std::string, std::string> coordinator;
  std::map<std::string, std::string> shard;
  client::TlsOptions tls;
  DoctorFlags flags;

 private:
  const TempDirectory directory_;
};

using Plant = std::function<void(World&)>;

std::map<std::string, Plant> KernelMistakes() {
  return {{"clock-unsynchronised", [](World& w) { w.machine.is_clock_synchronised = false; }},
          {"file-limit", [](World& w) { w.machine.descriptors_max = 1024; }},
          {"file-size-limit", [](World& w) { w.machine.file_bytes_max = 1 << 20; }},
          {"huge-pages-never",
           [](World& w) {
             Write(w.root() + "/sys/kernel/mm/transparent_hugepage/enabled",
                   "always madvise [never]");
           }},
          {"huge-pages-reserved",
           [](World& w) {
             Write(w.root() + "/proc/meminfo",
                   "MemTotal: 16777216 kB\nHugePages_Free: 1024\nHugepagesize: 2048 kB\n");
           }},
          {"overcommit-strict",
           [](World& w) { Write(w.root() + "/proc/sys/vm/overcommit_memory", "2\n"); }}};
}

std::map<std::string, Plant> ConfigMistakes() {
  return {{"config-unknown-flag", [](World& w) { w.shard["lisen"] = "127.0.0.1:1"; }},
          {"config-unreadable", [](World& w) { w.flags.coordinator_config = "other.conf"; }},
          {"listen-refused", [](World& w) { w.coordinator["listen"] = "10.0.0.1:7070"; }},
          {"memory-beyond-machine", [](World& w) { w.shard["memory-per-device"] = "9GiB"; }},
          {"name-unresolved", [](World& w) { w.shard["advertise"] = "nowhere:7080"; }},
          {"port-taken", [](World& w) { w.Listen(7070, "nginx"); }},
          {"port-twice", [](World& w) { w.shard["metrics-listen"] = "127.0.0.1:9101"; }},
          {"port-wrong", [](World& w) { w.shard["coordinator"] = "127.0.0.1:7071"; }},
          {"etcd-unreachable",
           [](World& w) {
             w.coordinator["state"] = "etcd://h1,h2/embla";
             w.machine.count_in_etcd = [](const EtcdClientOptions& options,
                                          const std::string&) -> absl::StatusOr<std::size_t> {
               if (options.members.front() == "h1:2379") return absl::UnavailableError("down");
               return absl::UnavailableError("down, too");
             };
           }},
          {"etcd-member",
           [](World& w) {
             w.coordinator["state"] = "etcd://h1,h2,h3/embla";
             w.machine.count_in_etcd = [](const EtcdClientOptions& options,
                                          const std::string&) -> absl::StatusOr<std::size_t> {
               if (options.members.front() == "h2:2379") return absl::UnavailableError("down");
               return 3;
             };
           }},
          {"etcd-one-address", [](World& w) { w.coordinator["state"] = "etcd://h1/embla"; }},
          {"coordinator-alone", [](World& w) {
             w.coordinator["state"] = "etcd://h1,h2,h3/embla";
             w.machine.count_in_etcd = [](const EtcdClientOptions&, const std::string& prefix) {
               EXPECT_EQ(prefix, "/embla/election/");
               return 1u;
             };
           }}};
}

std::map<std::string, Plant> DirectoryMistakes() {
  return {{"directory-in-memory",
           [](World& w) {
             Write(w.root() + "/proc/mounts",
                   absl::StrCat("/dev/sda1 / ext4 rw 0 0\ntmpfs ", w.data(), " tmpfs rw 0 0\n"));
           }},
          {"directory-on-network",
           [](World& w) {
             Write(w.root() + "/proc/mounts",
                   absl::StrCat("/dev/sda1 / ext4 rw 0 0\nnas:/x ", w.state(), " nfs4 rw 0 0\n"));
           }},
          {"directory-missing", [](World& w) { w.shard["data-dir"] = w.data() + "/typo"; }},
          {"directory-open", [](World& w) { fs::permissions(w.data(), fs::perms(0777)); }},
          {"directory-unusable", [](World& w) { w.shard["data-dir"] = w.data() + "/identity"; }},
          {"directory-owner",
           [](World& w) {
             ASSERT_EQ(::lchown((w.data() + "/identity").c_str(), 4711, 4711), 0) << "needs root";
           }},
          {"disk-fills",
           [](World& w) {
             w.machine.disk_space = [&w](const std::string& path) {
               return DiskSpace{path == w.data() ? kGiB : 20 * kGiB, 20 * kGiB};
             };
           }},
          {"disk-full", [](World& w) {
             w.machine.disk_space = [&w](const std::string& path) {
               return DiskSpace{path == w.data() ? kGiB / 1024 : kGiB, 2 * kGiB};
             };
           }}};
}

std::map<std::string, Plant> CertificateMistakes() {
  return {
      {"authority-ends",
       [](World& w) {
         const absl::Time then = absl::Now() - 300 * kDay;
         const auto authority = MakeAuthority("prod", 365 * kDay, then);
         ASSERT_THAT(authority, IsOk());
         const auto issued =
             IssueCertificate(*authority, {"prod", Role::kNode, "node1"}, 30 * kDay, absl::Now());
         ASSERT_THAT(issued, IsOk());
         Write(w.shard["tls-ca"], authority->certificate);
         Write(w.shard["tls-cert"], issued->key + issued->certificate);
       }},
      {"certificate-ends", [](World& w) { w.machine.now += 26 * kDay; }},
      {"certificate-expired", [](World& w) { w.machine.now += 31 * kDay; }},
      {"certificate-foreign",
       [](World& w) {
         const auto other = MakeAuthority("prod", 3650 * kDay, absl::Now());
         ASSERT_THAT(other, IsOk());
         Write(w.shard["tls-ca"], other->certificate);
       }},
      {"certificate-identity",
       [](World& w) { Write(w.shard["tls-cert"], w.authority.key + w.authority.certificate); }},
      {"certificate-name", [](World& w) { w.shard["name"] = "node2"; }},
      {"certificate-revoked",
       [](World& w) {
         std::ifstream file(w.shard["tls-cert"]);
         const auto facts = ReadCertificate(std::string(std::istreambuf_iterator<char>(file), {}));
         ASSERT_THAT(facts, IsOk());
         w.Revoke({facts->serial}, 30 * kDay);
       }},
      {"certificate-role",
       [](World& w) { w.shard["tls-cert"] = w.Issue(Role::kTrainer, "node1"); }},
      {"key-mismatch", [](World& w) { w.shard["tls-key"] = w.Issue(Role::kNode, "another"); }},
      {"revocation-list-ends", [](World& w) { w.Revoke({}, kDay); }},
      {"secret-readable", [](World& w) { fs::permissions(w.shard["tls-cert"], fs::perms(0644)); }},
      {"tls-incomplete", [](World& w) { w.shard.erase("tls-ca"); }}};
}

std::map<std::string, Plant> AllMistakes() {
  std::map<std::string, Plant> all = KernelMistakes();
  all.merge(ConfigMistakes());
  all.merge(DirectoryMistakes());
  all.merge(CertificateMistakes());
  return all;
}

TEST(MachineChecks, FindNothingWhereNothingIsWrong) { EXPECT_THAT(World().Found(), IsEmpty()); }

TEST(MachineChecks, AreAllPlanted) {
  std::map<std::string, Plant> planted = AllMistakes();
  for (const DoctorCheck& check : MachineChecks()) {
    EXPECT_EQ(planted.erase(std::string(check.name)), 1u) << check.name;
  }
  EXPECT_THAT(planted, IsEmpty());
}

class MachineMistake : public ::testing::TestWithParam<std::string> {};

TEST_P(MachineMistake, IsTheOnlyFinding) {
  const std::string& name = GetParam();
  if (name == "directory-owner" && ::geteuid() != 0) GTEST_SKIP() << "needs root";
  World world;
  AllMistakes().at(name)(world);
  const std::vector<std::string> found = world.Found();
  // etcd has no finding of its own for each member.
  const std::size_t times = name == "etcd-unreachable" ? 2 : 1;
  EXPECT_THAT(found, ::testing::ElementsAreArray(std::vector<std::string>(times, name)));
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, plant] : AllMistakes()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, MachineMistake, ::testing::ValuesIn(Names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(MachineChecks, AServersOwnPortIsNotTaken) {
  World world;
  world.Listen(7070, "embla-coordinat");
  EXPECT_THAT(world.Found(), IsEmpty());
}

TEST(MachineChecks, APortOfAnotherAddressIsFree) {
  World world;
  world.Listen(9102, "nginx");  // On 127.0.0.1.
  EXPECT_THAT(world.Found(), ElementsAre("port-taken"));
  world.shard["metrics-listen"] = "127.0.0.2:9102";
  EXPECT_THAT(world.Found(), IsEmpty());
  world.shard["metrics-listen"] = "localhost:9102";
  EXPECT_THAT(world.Found(), ElementsAre("port-taken"));
}

TEST(MachineChecks, APeoplesCommandLineHasAPeoplesCertificate) {
  World world;
  world.tls = {.certificate = world.Issue(Role::kNode, "node1"),
               .authorities = world.root() + "/ca.pem"};
  EXPECT_THAT(world.Found(), ElementsAre("certificate-role"));
  world.tls.certificate = world.Issue(Role::kOperator, "ann");
  EXPECT_THAT(world.Found(), IsEmpty());
}

TEST(MachineChecks, AListThatIsOutOfDateRefusesEverybody) {
  World world;
  world.Revoke({}, 5 * kDay);
  world.machine.now += 6 * kDay;
  const Report report = world.Examine();
  ASSERT_EQ(report.findings().size(), 1u);
  EXPECT_EQ(report.findings()[0].check.name, "certificate-revoked");
  EXPECT_THAT(report.findings()[0].what, HasSubstr("out of date"));
}

TEST(MachineChecks, ClusterKeysOfDirectoriesAreSecrets) {
  World world;
  Write(world.state() + "/cluster.key", "embla-cluster-key 1 00");
  fs::permissions(world.state() + "/cluster.key", fs::perms(0604));
  EXPECT_THAT(world.Found(), ElementsAre("secret-readable"));
}

TEST(MachineChecks, AMistypedFlagIsNamedWithItsNeighbour) {
  World world;
  world.shard["lisen"] = "127.0.0.1:1";
  EXPECT_THAT(world.Examine().findings()[0].what, HasSubstr("no flag lisen; listen is one"));
}

TEST(MachineChecks, ThePackagesPlacesAreLookedAt) {
  World world;
  world.flags = {};
  EXPECT_THAT(world.Found(), IsEmpty());  // Nothing is installed.
  Write(world.root() + "/etc/embla/shard.conf", "");
  EXPECT_THAT(world.Found(), ElementsAre("config-unreadable"));
  fs::remove(world.root() + "/etc/embla/shard.conf");
  fs::create_directories(world.root() + "/var/lib/embla/nodes/n1");
  fs::permissions(world.root() + "/var/lib/embla/nodes/n1", fs::perms(0777));
  EXPECT_THAT(world.Found(), ElementsAre("directory-open"));
}

// By the real /proc: this process listens.
TEST(ThisMachine, SaysWhoListens) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = ::embla::testing::SocketName(::embla::testing::AnyLoopbackPort());
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(socket.number(), name, size), 0);
  ASSERT_EQ(::listen(socket.number(), 1), 0);
  ASSERT_EQ(::getsockname(socket.number(), name, &size), 0);
  const int port = ntohs(address.sin_port);

  Report report;
  const ServerConfig server{
      "c", true, {{"listen", absl::StrCat(::embla::testing::LoopbackHost(), ":", port)}}};
  CheckServers(ThisMachine::Read(), {server}, "", report);
  ASSERT_EQ(report.findings().size(), 1u);
  EXPECT_EQ(report.findings()[0].check.name, "port-taken");
  EXPECT_THAT(report.findings()[0].what,
              HasSubstr(absl::StrCat("(process ", ::getpid(), ") listens on port ", port)));
}

TEST(ThisMachine, HasNamesDisksAndLimits) {
  const ThisMachine machine = ThisMachine::Read();
  EXPECT_TRUE(machine.resolves("localhost"));
  const auto space = machine.disk_space("/");
  ASSERT_THAT(space, IsOk());
  EXPECT_GT(space->bytes, space->free_bytes);
  EXPECT_GT(machine.descriptors_max, 0u);
  EXPECT_THAT(machine.count_in_etcd({.members = {"127.0.0.1:1"}}, "/embla/election/"),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(DoctorVerdict, IsThatOfErrorsAndIfStrictOfWarnings) {
  Report report;
  EXPECT_THAT(Verdict(report, true), IsOk());
  report.Add("huge-pages-never", "this machine", "");
  EXPECT_THAT(Verdict(report, true), IsOk());
  report.Add("disk-fills", "/data", "");
  EXPECT_THAT(Verdict(report, false), IsOk());
  EXPECT_THAT(Verdict(report, true), StatusIs(absl::StatusCode::kAborted));
  report.Add("disk-full", "/data", "");
  EXPECT_THAT(Verdict(report, false), StatusIs(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace embla::cli
