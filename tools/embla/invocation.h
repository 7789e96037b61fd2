// One command line: the values of the flags, and their use by the verbs.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "tools/embla/certs_cmd.h"
#include "tools/embla/cluster_plan_cmd.h"
#include "tools/embla/doctor_config.h"
#include "tools/embla/job_cmd.h"
#include "tools/embla/lookup_cmd.h"
#include "tools/embla/output.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_solve_cmd.h"
#include "tools/embla/table_request.h"
#include "tools/embla/table_rows_cmd.h"
#include "tools/embla/verify_cmd.h"

namespace embla::cli {

// The flags of every verb. The verb on the command line leaves its action in `run`.
struct Invocation {
  std::string admin_address = "127.0.0.1:7071";
  std::string coordinator_address = "127.0.0.1:7070";
  client::TlsOptions tls;
  double timeout_seconds = 10;
  bool json = false;
  bool if_not_exists = false;

  TableFlags table;
  StatedNodes stated;
  PlanSolveFlags solve;
  bool solve_on_cluster = false;
  PlanApplyFlags apply;
  std::uint64_t from_version = 0;
  std::uint64_t to_version = 0;
  std::uint32_t limit = 20;
  std::string plan_file;
  LookupFlags lookup;
  JobFlags job;
  std::uint64_t job_id = 0;
  CertsFlags certs;
  bool wait = false;
  std::int64_t explained_id = 0;
  client::SweepOptions sweep;
  bool follow = false;
  std::string evictions_file;
  RowFilesRequest row_files;
  std::string table_name;
  std::vector<std::string> table_names;
  std::vector<std::string> assignments;
  bool yes = false;
  bool aside = false;
  std::uint32_t table_id = 0;
  std::string node_name;
  bool lose_rows = false;
  std::string state_directory;
  std::string backup;
  ReadConfig read_config;  // The library that reads files for servers reads them here, too.

  std::function<absl::Status()> run;

  Output output() const { return {json, std::cout, Terminal::Of(STDOUT_FILENO)}; }
  // Connect, and do it. Unavailable names the address.
  absl::Status WithAdmin(const std::function<absl::Status(client::Admin&)>& verb) const;
  absl::Status WithAdmin(absl::Duration timeout,
                         const std::function<absl::Status(client::Admin&)>& verb) const;
  absl::Status WithClient(const std::function<absl::Status(client::Client&)>& verb) const;

  // For verbs that create tables: waits as long as the coordinator does.
  absl::Status WithCreator(const std::function<absl::Status(client::Admin&)>& verb) const;
  absl::Status CreateTables() const;
  absl::Status SolvePlan() const;
  absl::Status PlanTable() const;
  using MakeRequest = std::function<absl::StatusOr<v1::StartJobRequest>(const JobFlags&)>;
  absl::Status StartJob(const MakeRequest& make) const;
  absl::Status ForgetNode() const;
  absl::Status WatchJob() const;
  absl::Status VerifyTable(const VerifyRequest& request) const;
};

}  // namespace embla::cli
