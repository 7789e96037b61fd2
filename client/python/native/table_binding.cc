#include "client/python/native/table_binding.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "client/python/native/arrays.h"
#include "client/python/native/errors.h"
#include "client/python/native/options.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {
namespace {

using client::Client;

void ReadRows(ClientHandle& handle, std::string table, const Ids& ids, const Matrix<float>& out) {
  const auto call = [table = std::move(table), ids = SpanOf(ids), out = SpanOf(out)](
                        Client& client) { return client.ReadRows(table, ids, out); };
  Check(handle.Run(call, {nb::ndarray<>(ids), nb::ndarray<>(out)}));
}

void ReadState(ClientHandle& handle, std::string table, const Ids& ids, const Matrix<float>& out) {
  const auto call = [table = std::move(table), ids = SpanOf(ids), out = SpanOf(out)](
                        Client& client) { return client.ReadState(table, ids, out); };
  Check(handle.Run(call, {nb::ndarray<>(ids), nb::ndarray<>(out)}));
}

void WriteRows(ClientHandle& handle, std::string table, const Ids& ids,
               const std::optional<Matrix<const float>>& rows,
               const std::optional<Matrix<const float>>& state, double timeout) {
  KeptArrays arrays = {nb::ndarray<>(ids)};
  std::span<const float> weights, states;
  if (rows) {
    weights = SpanOf(*rows);
    arrays.emplace_back(*rows);
  }
  if (state) {
    states = SpanOf(*state);
    arrays.emplace_back(*state);
  }
  const client::CallOptions options{.timeout = DurationFromSeconds("timeout", timeout)};
  const auto call = [table = std::move(table), ids = SpanOf(ids), weights, states,
                     options](Client& client) {
    return client.WriteRows(table, ids, weights, states, options);
  };
  Check(handle.Run(call, std::move(arrays)), CallKind::kWrite);
}

// Runs `call`, which returns absl::StatusOr<Value>, interruptibly; raises its error.
template <typename Value, typename Call>
Value RunFor(ClientHandle& handle, Call call) {
  auto value = std::make_shared<Value>();  // The call may outlive this function.
  Check(handle.Run([call = std::move(call), value](Client& client) {
    absl::StatusOr<Value> result = call(client);
    if (result.ok()) *value = *std::move(result);
    return result.status();
  }));
  return std::move(*value);
}

nb::list Tables(ClientHandle& handle) {
  nb::list tables;
  for (const client::TableInfo& table : handle.Use()->Tables()) {
    nb::dict info;
    info["name"] = table.name;
    info["rows"] = table.rows;
    info["dim"] = table.dim;
    info["dtype"] = table.dtype;
    info["sharding"] = table.sharding;
    info["optimizer"] = table.optimizer;
    info["replica_groups"] = table.replica_groups;
    info["replica_group"] = table.replica_group;
    info["zch"] = table.zch;
    info["sync"] = table.sync;
    tables.append(info);
  }
  return tables;
}

nb::list Sync(ClientHandle& handle, std::vector<std::string> tables, double timeout) {
  const client::CallOptions options{.timeout = DurationFromSeconds("timeout", timeout)};
  using Reports = std::vector<client::TableSyncReport>;
  nb::list list;
  for (const client::TableSyncReport& report :
       RunFor<Reports>(handle, [tables = std::move(tables), options](Client& client) {
         return client.Sync(tables, options);
       })) {
    nb::dict fields;
    fields["table"] = report.table;
    fields["replica_groups"] = report.replica_groups;
    fields["divergence_max"] = report.divergence_max;
    fields["divergence_rms"] = report.divergence_rms;
    list.append(fields);
  }
  return list;
}

std::vector<std::uint64_t> JoinSteps(ClientHandle& handle, std::vector<std::string> tables,
                                     double timeout) {
  return RunFor<std::vector<std::uint64_t>>(
      handle, [tables = std::move(tables), timeout = DurationFromSeconds("timeout", timeout)](
                  Client& client) { return client.JoinSteps(tables, timeout); });
}

nb::dict ExplainId(ClientHandle& handle, std::string table, std::int64_t id) {
  const auto found = RunFor<client::IdExplanation>(
      handle,
      [table = std::move(table), id](Client& client) { return client.ExplainId(table, id); });
  nb::dict fields;
  fields["node"] = found.node;
  fields["device"] = found.device;
  fields["bucket"] = found.bucket;
  fields["row"] = found.row;
  fields["shared_row"] = found.shared_row;
  fields["last_step"] = found.last_step;
  fields["touches"] = found.touches;
  fields["expires_at_step"] = found.expires_at_step;
  fields["seen"] = found.seen;
  fields["group_residents"] = found.group_residents;
  fields["evicted_reason"] = found.evicted_reason;
  fields["evicted_at_step"] = found.evicted_at_step;
  fields["evicted_last_step"] = found.evicted_last_step;
  fields["evictions_known_since"] = found.evictions_known_since;
  return fields;
}

nb::dict Survey(ClientHandle& handle, std::string table) {
  const auto survey = RunFor<client::TableSurvey>(
      handle, [table = std::move(table)](Client& client) { return client.SurveyTable(table); });
  nb::dict fields;
  fields["slots"] = survey.slots;
  fields["residents"] = survey.residents;
  fields["full_groups"] = survey.full_groups;
  fields["waiting"] = survey.waiting;
  fields["age_sum"] = survey.age_sum;
  fields["oldest_age"] = survey.oldest_age;
  fields["latest_step"] = survey.latest_step;
  return fields;
}

nb::dict Sweep(ClientHandle& handle, std::string table,
               std::optional<std::uint64_t> older_than_steps,
               std::optional<std::uint64_t> at_step) {
  const client::SweepOptions options{.older_than_steps = older_than_steps, .at_step = at_step};
  const auto report =
      RunFor<client::SweepReport>(handle, [table = std::move(table), options](Client& client) {
        return client.SweepTable(table, options);
      });
  nb::dict fields;
  fields["at_step"] = report.at_step;
  fields["evicted"] = report.evicted;
  return fields;
}

void ExportNpy(ClientHandle& handle, std::string table, std::string path) {
  Check(handle.Run([table = std::move(table), path = std::move(path)](Client& client) {
    return client.ExportTable(table, path);
  }));
}

}  // namespace

void BindTables(nb::class_<ClientHandle>& binding) {
  binding.def("_read_rows", &ReadRows, "table"_a, nb::arg("ids").noconvert(),
              nb::arg("out").noconvert());
  binding.def("_read_state", &ReadState, "table"_a, nb::arg("ids").noconvert(),
              nb::arg("out").noconvert());
  binding.def("_write_rows", &WriteRows, "table"_a, nb::arg("ids").noconvert(),
              nb::arg("rows").noconvert().none(), nb::arg("state").noconvert().none(), "timeout"_a);
  binding.def(
      "state_floats",
      [](ClientHandle& handle, std::string table) {
        return RunFor<std::size_t>(handle, [table = std::move(table)](Client& client) {
          return client.StateFloatsPerRow(table);
        });
      },
      "table"_a, "How many floats of optimizer state a row of `table` has.");
  binding.def("_tables", &Tables);
  binding.def(
      "refresh_plan",
      [](ClientHandle& handle) {
        Check(handle.Run([](Client& client) { return client.RefreshPlan(); }));
      },
      "Fetches the current plan; calls do so by themselves when they need it.");
  binding.def("_sync", &Sync, "tables"_a, "timeout"_a);
  binding.def("_join_steps", &JoinSteps, "tables"_a, "timeout"_a);
  binding.def("_explain_id", &ExplainId, "table"_a, "id"_a);
  binding.def("_survey", &Survey, "table"_a);
  binding.def("_sweep", &Sweep, "table"_a, "older_than_steps"_a, "at_step"_a);
  binding.def("_export_npy", &ExportNpy, "table"_a, "path"_a);
}

}  // namespace embla::python
