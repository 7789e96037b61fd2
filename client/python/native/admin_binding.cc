// The Python class Admin over embla/admin.h. Documents are JSON text, as the service keeps them.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "absl/strings/str_cat.h"
#include "client/python/native/bindings.h"
#include "client/python/native/errors.h"
#include "client/python/native/fork_guard.h"
#include "client/python/native/options.h"
#include "client/python/native/waiting.h"
#include "embla/admin.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {
namespace {

using client::Admin;
using client::Job;
using client::JobRequest;

// Refuses use after close and after fork, as ClientHandle does.
class AdminHandle {
 public:
  AdminHandle(const std::string& address, absl::Duration timeout, Admin::IfAbsent if_absent) {
    auto made = std::make_shared<std::shared_ptr<Admin>>();
    Check(RunInterruptibly([address, timeout, if_absent, made] {
      absl::StatusOr<std::unique_ptr<Admin>> admin = Admin::Connect(address, timeout, if_absent);
      if (admin.ok()) *made = *std::move(admin);
      return admin.status();
    }));
    admin_ = std::move(*made);
  }
  ~AdminHandle() { Close(); }
  AdminHandle(const AdminHandle&) = delete;
  AdminHandle& operator=(const AdminHandle&) = delete;

  void Close() {
    if (admin_ != nullptr && fork_guard_.forked()) {
      new std::shared_ptr<Admin>(std::move(admin_));  // Its threads are in the parent: never ends.
      return;
    }
    const nb::gil_scoped_release no_gil;
    admin_.reset();
  }

  // Runs `call`, which returns absl::StatusOr<Value>, interruptibly; raises its error.
  template <typename Value, typename Call>
  Value Run(CallKind kind, Call call) {
    if (fork_guard_.forked()) {
      RaiseNamed("ForkedClientError",
                 "this process was forked after the admin connected: connect again in it");
    }
    if (admin_ == nullptr) RaiseNamed("ClientClosedError", "the admin is closed");
    auto value = std::make_shared<Value>();  // The call may outlive this function.
    Check(RunInterruptibly([admin = admin_, call = std::move(call), value] {
            absl::StatusOr<Value> result = call(*admin);
            if (result.ok()) *value = *std::move(result);
            return result.status();
          }),
          kind);
    return std::move(*value);
  }

 private:
  const ForkGuard fork_guard_;
  std::shared_ptr<Admin> admin_;  // Null after Close.
};

// Seconds since the epoch, or None for the epoch itself: not yet.
nb::object TimeOf(absl::Time time) {
  if (time == absl::UnixEpoch() || time == absl::Time()) return nb::none();
  return nb::float_(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
}

const char* NameOf(client::JobState state) {
  switch (state) {
    case client::JobState::kRunning:
      return "running";
    case client::JobState::kPaused:
      return "paused";
    case client::JobState::kCancelling:
      return "cancelling";
    case client::JobState::kDone:
      return "done";
    case client::JobState::kCancelled:
      return "cancelled";
    case client::JobState::kFailed:
      return "failed";
    case client::JobState::kQueued:
      return "queued";
  }
  return "unknown";
}

nb::dict FieldsOf(const client::PlannedMove& move) {
  nb::dict fields;
  fields["table"] = move.table;
  fields["rows"] = nb::make_tuple(move.row_begin, move.row_end);
  fields["columns"] = nb::make_tuple(move.column_begin, move.column_end);
  fields["from_node"] = move.from_node;
  fields["from_device"] = move.from_device;
  fields["to_node"] = move.to_node;
  fields["to_device"] = move.to_device;
  fields["bytes"] = move.bytes;
  return fields;
}

nb::dict FieldsOf(const Job& job) {
  nb::dict fields;
  fields["id"] = job.id;
  fields["description"] = job.description;
  fields["state"] = NameOf(job.state);
  fields["error"] = job.error;
  fields["units_total"] = job.units_total;
  fields["units_moved"] = job.units_moved;
  fields["units_open"] = job.units_open;
  fields["units_frozen"] = job.units_frozen;
  fields["bytes_total"] = job.bytes_total;
  fields["bytes_moved"] = job.bytes_moved;
  fields["started"] = TimeOf(job.started);
  fields["ended"] = TimeOf(job.ended);
  fields["pause_p50_ms"] = job.pause_p50_ms;
  fields["pause_p99_ms"] = job.pause_p99_ms;
  fields["pause_max_ms"] = job.pause_max_ms;
  nb::list moves;
  for (const client::PlannedMove& move : job.moves) moves.append(FieldsOf(move));
  fields["moves"] = moves;
  return fields;
}

nb::dict ClusterStatus(AdminHandle& handle) {
  const auto status = handle.Run<client::ClusterStatus>(
      CallKind::kRead, [](Admin& admin) { return admin.GetClusterStatus(); });
  nb::dict fields;
  fields["cluster_id"] = status.cluster_id;
  fields["plan_version"] = status.plan_version;
  fields["nodes_live"] = status.nodes_live;
  fields["nodes_total"] = status.nodes_total;
  fields["tables"] = status.tables;
  fields["started"] = TimeOf(status.started);
  fields["version"] = status.version;
  return fields;
}

nb::list Nodes(AdminHandle& handle) {
  nb::list nodes;
  for (const client::NodeStatus& node : handle.Run<std::vector<client::NodeStatus>>(
           CallKind::kRead, [](Admin& admin) { return admin.ListNodes(); })) {
    nb::dict fields;
    fields["node_json"] = node.node_json;
    fields["live"] = node.live;
    fields["drained"] = node.drained;
    fields["device_used_bytes"] = node.device_used_bytes;
    fields["last_heartbeat"] = TimeOf(node.last_heartbeat);
    fields["plan_version"] = node.plan_version;
    fields["failure"] = node.failure;
    nodes.append(fields);
  }
  return nodes;
}

nb::dict FieldsOf(const client::TableChange& change) {
  nb::dict fields;
  fields["table_plan_json"] = change.table_plan_json;
  fields["plan_version"] = change.plan_version;
  fields["left_out"] = change.left_out;
  return fields;
}

nb::dict CreateTable(AdminHandle& handle, std::string spec, std::string placement) {
  return FieldsOf(handle.Run<client::TableChange>(
      CallKind::kWrite, [spec = std::move(spec), placement = std::move(placement)](Admin& admin) {
        return admin.CreateTable(spec, placement);
      }));
}

nb::dict PlanTable(AdminHandle& handle, std::string spec, std::string placement) {
  return FieldsOf(handle.Run<client::TableChange>(
      CallKind::kRead, [spec = std::move(spec), placement = std::move(placement)](Admin& admin) {
        return admin.PlanTable(spec, placement, {});
      }));
}

nb::dict SetTable(AdminHandle& handle, std::string name,
                  std::map<std::string, std::string> values) {
  return FieldsOf(handle.Run<client::TableChange>(
      CallKind::kWrite, [name = std::move(name), values = std::move(values)](Admin& admin) {
        return admin.SetTable(name, values);
      }));
}

std::uint64_t DropTable(AdminHandle& handle, std::string name) {
  return handle.Run<std::uint64_t>(
      CallKind::kWrite, [name = std::move(name)](Admin& admin) { return admin.DropTable(name); });
}

JobRequest::Goal GoalFromName(const std::string& name) {
  using Goal = JobRequest::Goal;
  if (name == "reshard") return Goal::kReshard;
  if (name == "move") return Goal::kMove;
  if (name == "drain") return Goal::kDrain;
  if (name == "undrain") return Goal::kUndrain;
  if (name == "rebalance") return Goal::kRebalance;
  Raise(absl::InvalidArgumentError(absl::StrCat("goal is \"", name, "\"")));
}

nb::dict StartJob(AdminHandle& handle, const std::string& goal, std::string table,
                  std::uint32_t shards, std::string node, std::uint64_t bytes_per_second,
                  bool dry_run) {
  JobRequest request{.goal = GoalFromName(goal),
                     .table = std::move(table),
                     .shards = shards,
                     .node = std::move(node),
                     .bytes_per_second = bytes_per_second,
                     .dry_run = dry_run};
  return FieldsOf(handle.Run<Job>(dry_run ? CallKind::kRead : CallKind::kWrite,
                                  [request](Admin& admin) { return admin.StartJob(request); }));
}

nb::dict ControlJob(AdminHandle& handle, std::uint64_t id, const std::string& control) {
  const client::JobControl wanted = control == "pause"    ? client::JobControl::kPause
                                    : control == "resume" ? client::JobControl::kResume
                                                          : client::JobControl::kCancel;
  return FieldsOf(handle.Run<Job>(
      CallKind::kWrite, [id, wanted](Admin& admin) { return admin.ControlJob(id, wanted); }));
}

nb::list Jobs(AdminHandle& handle) {
  nb::list jobs;
  for (const Job& job : handle.Run<std::vector<Job>>(
           CallKind::kRead, [](Admin& admin) { return admin.ListJobs(); })) {
    jobs.append(FieldsOf(job));
  }
  return jobs;
}

}  // namespace

void BindAdmin(nb::module_& module) {
  nb::class_<AdminHandle>(module, "Admin")
      .def(
          "__init__",
          [](AdminHandle* self, const std::string& address, double timeout, bool waits) {
            new (self) AdminHandle(address, DurationFromSeconds("timeout", timeout),
                                   waits ? Admin::IfAbsent::kWait : Admin::IfAbsent::kFail);
          },
          "address"_a, nb::kw_only(), "timeout"_a = 10.0, "waits_for_coordinator"_a = true)
      .def("close", &AdminHandle::Close, "Ends the connection.")
      .def("_status", &ClusterStatus)
      .def("_nodes", &Nodes)
      .def("_create_table", &CreateTable, "spec_json"_a, "placement_json"_a)
      .def("_plan_table", &PlanTable, "spec_json"_a, "placement_json"_a)
      .def("_set_table", &SetTable, "name"_a, "values"_a)
      .def("_drop_table", &DropTable, "name"_a)
      .def("_plan_json",
           [](AdminHandle& handle) {
             return handle.Run<std::string>(CallKind::kRead,
                                            [](Admin& admin) { return admin.GetPlanJson(); });
           })
      .def("_start_job", &StartJob, "goal"_a, nb::kw_only(), "table"_a, "shards"_a, "node"_a,
           "bytes_per_second"_a, "dry_run"_a)
      .def("_jobs", &Jobs)
      .def(
          "_job",
          [](AdminHandle& handle, std::uint64_t id) {
            return FieldsOf(
                handle.Run<Job>(CallKind::kRead, [id](Admin& admin) { return admin.GetJob(id); }));
          },
          "id"_a)
      .def("_control_job", &ControlJob, "id"_a, "control"_a);
}

}  // namespace embla::python
