// `embla doctor`: looks for usual mistakes, on this machine and in the cluster. docs/doctor.md
//
// A check is a line in doctor_checks.cc and a few lines in the file of its subject:
// doctor_kernel.cc, doctor_config.cc, doctor_servers.cc, doctor_directories.cc,
// doctor_certificates.cc or doctor_cluster.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/tls.h"
#include "tools/embla/doctor_machine.h"
#include "tools/embla/verb.h"

namespace embla::cli {

struct DoctorFlags {
  bool machine_only = false;
  bool cluster_only = false;
  bool is_strict = false;
  bool lists_checks = false;
  std::string coordinator_config;  // Empty: /etc/embla/coordinator.conf, if it is there.
  std::string shard_config;        // Empty: /etc/embla/shard.conf, if it is there.
  std::vector<std::string> directories;
};

std::vector<Verb> DoctorVerbs();

// Files, directories and kernel. `tls` and `admin_address` are the command line's own.
void ExamineMachine(const ThisMachine& machine, const DoctorFlags& flags, const ReadConfig& read,
                    const client::TlsOptions& tls, const std::string& admin_address,
                    Report& report);

// Aborted: an error was found, or a warning, if `is_strict`.
absl::Status Verdict(const Report& report, bool is_strict);

}  // namespace embla::cli
