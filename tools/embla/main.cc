// embla: what operators type. One file per noun; this one binds flags to them.
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/log.h"
#include "core/base/named_option.h"
#include "core/base/program_flags.h"
#include "core/base/tls_flags.h"
#include "core/base/usage_error.h"
#include "core/plan/names.h"
#include "tools/embla/certs_cmd.h"
#include "tools/embla/cluster_cmd.h"
#include "tools/embla/cluster_plan_cmd.h"
#include "tools/embla/doctor_cmd.h"
#include "tools/embla/exit_code.h"
#include "tools/embla/health_cmd.h"
#include "tools/embla/id_cmd.h"
#include "tools/embla/invocation.h"
#include "tools/embla/job_cmd.h"
#include "tools/embla/journal_cmd.h"
#include "tools/embla/log_cmd.h"
#include "tools/embla/lookup_cmd.h"
#include "tools/embla/node_cmd.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_solve_cmd.h"
#include "tools/embla/state_cmd.h"
#include "tools/embla/table_cmd.h"
#include "tools/embla/table_rows_cmd.h"
#include "tools/embla/token_cmd.h"
#include "tools/embla/top_cmd.h"
#include "tools/embla/verb.h"
#include "tools/embla/verify_cmd.h"
#include "tools/embla/zch_cmd.h"

namespace embla::cli {
namespace {

CLI::App& AddNoun(CLI::App& app, const std::string& name, const std::string& what) {
  CLI::App* noun = app.add_subcommand(name, what);
  noun->require_subcommand(1);
  return *noun;
}

CLI::App* AddVerb(CLI::App& noun, const std::string& name, const std::string& what,
                  Invocation& invocation, std::function<absl::Status()> action) {
  CLI::App* verb = noun.add_subcommand(name, what);
  verb->callback([&invocation, action = std::move(action)] { invocation.run = action; });
  return verb;
}

void AddShapeFlags(CLI::App& verb, TableFlags& table) {
  verb.add_option("--file", table.file, "YAML or JSON file with one table or a list of them");
  verb.add_option("--name", table.name, "table name: letters, digits, . _ -");
  verb.add_option("--rows", table.rows, "rows");
  verb.add_option("--dim", table.dim, "columns");
  verb.add_option("--dtype", table.dtype, "fp32 (default), fp16 or bf16");
  verb.add_option("--rounding", table.rounding, "of fp16 and bf16: nearest (default), stochastic");
  verb.add_option("--bounds", table.bounds, "ids out of range: error (default) or ignore");
  verb.add_option("--nan-policy", table.nan_policy, "NaN gradients: reject (default) or allow");
  verb.add_option("--durability", table.durability, "queued, written, synced; default: the nodes'");
  verb.add_option("--callers", table.callers, "trainers and readers that may use it; default: all");
  verb.add_option("--seed", table.seed, "of initial values and stochastic rounding");
  verb.add_option("--row-granules", table.row_granules, "units by rows; 0: min(rows, 4096)");
  verb.add_option("--column-granule-width", table.column_granule_width, "columns per unit; 0: 4");
  verb.add_option("--init", table.init, "default, constant (a), uniform [a, b), normal (a, b)");
  verb.add_option("--init-a", table.init_a, "see --init");
  verb.add_option("--init-b", table.init_b, "see --init");
}

void AddZchFlags(CLI::App& verb, ZchFlags& zch) {
  verb.add_flag("--zch", zch.zch, "ids are any 64-bit numbers, and get rows as they come");
  verb.add_option("--capacity", zch.capacity,
                  "instead of --rows: ids that can have a row, in multiples of 64 x buckets");
  verb.add_option("--buckets", zch.buckets, "units of a ZCH table; 0: 768");
  verb.add_option("--policy", zch.policy,
                  "who makes room: lru (default), lfu, distance_lfu[:2], ttl:STEPS[:evict]");
  verb.add_option("--admission", zch.admission, "all (default), count:N or probability:P");
  verb.add_option("--unseen", zch.unseen,
                  "ids without a row read: initial (default), default, zero or error");
  verb.add_option("--reserved-lanes", zch.reserved_lanes,
                  "of 64 rows, those shared by ids without one; with --unseen default");
  verb.add_option("--eviction-buffer", zch.eviction_buffer_bytes,
                  "of evicted rows that each node keeps for `table evictions`: bytes, or 256MiB; "
                  "0: none")
      ->transform(CLI::AsSizeValue(false));
}

void AddSyncFlags(CLI::App& verb, TableFlags& table) {
  verb.add_flag("--sync", table.sync,
                "synchronous steps: rows step once per training step, with the sum over all ranks");
  verb.add_option("--step-timeout-ms", table.step_timeout_ms,
                  "with --sync: a rank whose part of a step others have waited for so long is "
                  "silent; default 30000");
  verb.add_option("--on-silence", table.on_silence,
                  "with --sync: close (default), steps are made without the silent rank, or fail, "
                  "they fail for all until ranks join again");
  verb.add_option("--steps-ahead", table.steps_ahead,
                  "with --sync: nodes keep parts of up to so many steps to come; default 8");
}

void AddOptimizerFlags(CLI::App& verb, TableFlags& table) {
  OptimizerSpec& numbers = table.numbers;
  verb.add_option("--optimizer", table.optimizer,
                  AllNames<OptimizerKind>() + "; default rowwise_adagrad");
  verb.add_option("--learning-rate", numbers.learning_rate, "step size")->capture_default_str();
  verb.add_option("--eps", numbers.eps, "Adagrad, Adam")->capture_default_str();
  verb.add_option("--beta1", numbers.beta1, "Adam")->capture_default_str();
  verb.add_option("--beta2", numbers.beta2, "Adam")->capture_default_str();
  verb.add_option("--initial-accumulator", numbers.initial_accumulator, "Adagrad");
  verb.add_option("--weight-decay", numbers.weight_decay, "0: none");
  verb.add_option("--weight-decay-mode", table.weight_decay_mode, "none, l2 or decoupled");
  verb.add_option("--gradient-clip", numbers.gradient_clip, "clamp each element; 0: off");
  verb.add_option("--bias-correction", table.bias_correction, "Adam: row (default) or step");
}

void AddPlacementFlags(CLI::App& verb, TableFlags& table, const std::string& nodes_flag) {
  verb.add_option("--sharding", table.sharding,
                  AllNames<ShardingType>() + ";\nauto: the planner chooses");
  verb.add_option(nodes_flag, table.nodes, "allowed nodes, by name")->delimiter(',');
  verb.add_option("--devices", table.devices, "allowed device numbers of each node")
      ->delimiter(',');
  verb.add_option("--min-partition", table.min_partition, "narrowest column block; 0: by dim");
  verb.add_option("--lookups-per-sample", table.lookups_per_sample,
                  "ids per training sample: the planner's measure of load")
      ->capture_default_str();
  verb.add_option("--replica-groups", table.replica_groups,
                  "copies, each on its share of every node's devices (2D parallelism)")
      ->capture_default_str();
  verb.add_option("--sync-every-steps", table.sync_every_steps,
                  "average the copies after so many updates of each; 0: when asked");
}

// How a table is to be. `nodes_flag` names allowed nodes.
void AddTableFlags(CLI::App& verb, TableFlags& table, const std::string& nodes_flag) {
  AddShapeFlags(verb, table);
  AddZchFlags(verb, table.zch);
  AddSyncFlags(verb, table);
  AddOptimizerFlags(verb, table);
  AddPlacementFlags(verb, table, nodes_flag);
}

// A verb whose action talks to the coordinator's admin listener.
CLI::App* AddAdminVerb(CLI::App& noun, const std::string& name, const std::string& what,
                       Invocation& in, std::function<absl::Status(client::Admin&)> action) {
  return AddVerb(noun, name, what, in,
                 [&in, action = std::move(action)] { return in.WithAdmin(action); });
}

void AddVerbs(CLI::App& noun, Invocation& in, std::vector<Verb> verbs) {
  for (Verb& verb : verbs) {
    CLI::App* const added = AddVerb(
        noun, verb.name, verb.help, in,
        [&in, run = std::move(verb.run), run_alone = std::move(verb.run_alone)] {
          if (run_alone) return run_alone(in);
          return in.WithAdmin([&](client::Admin& admin) { return run(admin, in.output()); });
        });
    for (const Argument& argument : verb.arguments) {
      CLI::Option* const option = std::visit(
          [&]<typename Value>(Value* value) {
            if constexpr (std::is_same_v<Value, bool>) {
              return added->add_flag(argument.name, *value, argument.help);
            } else {
              return added->add_option(argument.name, *value, argument.help);
            }
          },
          argument.value);
      option->required(argument.is_required);
    }
  }
}

// A verb about the ids of one ZCH table.
CLI::App* AddZchVerb(CLI::App& noun, const std::string& name, const std::string& what,
                     Invocation& in, std::function<absl::Status(client::Client&)> action) {
  CLI::App* verb = AddVerb(noun, name, what, in,
                           [&in, action = std::move(action)] { return in.WithClient(action); });
  verb->add_option("--table", in.table_name, "table name")->required();
  return verb;
}

void AddZchVerbs(CLI::App& noun, Invocation& in) {
  AddZchVerb(noun, "survey", "how full a ZCH table is, and how old its ids are", in,
             [&in](client::Client& client) {
               return TableSurveyVerb(client, in.table_name, in.output());
             });
  CLI::App* sweep =
      AddZchVerb(noun, "sweep", "take the rows of a whole generation of ids away", in,
                 [&in](client::Client& client) {
                   return TableSweepVerb(client, in.table_name, in.sweep, in.output());
                 });
  sweep->add_option("--older-than", in.sweep.older_than_steps,
                    "ids last touched so many steps ago, or longer; without: whose TTL is over");
  sweep->add_option("--at-step", in.sweep.at_step,
                    "what counts as now; without: the latest step of any id");
  CLI::App* evictions =
      AddZchVerb(noun, "evictions", "the rows that ids of a ZCH table lost", in,
                 [&in](client::Client& client) {
                   if (in.evictions_file.empty()) {
                     return TableEvictionsVerb(client, in.table_name, in.follow, in.output());
                   }
                   return TableEvictionsToFile(client, in.table_name, in.follow, in.evictions_file);
                 });
  evictions->add_flag("--follow", in.follow, "and those to come, until stopped");
  evictions->add_option("--file", in.evictions_file, "append them to this file, as JSON lines");
}

// Verbs for tables and rows that a restore from an older copy leaves aside.
void AddAsideVerbs(CLI::App& noun, Invocation& in) {
  CLI::App* adopt = AddAdminVerb(
      noun, "adopt", "serve a table again that is kept aside", in, [&in](client::Admin& admin) {
        return TableAdoptVerb(admin, in.table_name, in.table_id, in.output());
      });
  adopt->add_option("table", in.table_name, "table name")->required();
  adopt->add_option("--id", in.table_id, "which, if several have the name");
  CLI::App* leftovers =
      AddAdminVerb(noun, "drop-leftovers", "give up rows of a table that a node keeps aside", in,
                   [&in](client::Admin& admin) {
                     return TableDropLeftoversVerb(admin, in.table_name, in.node_name, in.output());
                   });
  leftovers->add_option("--table", in.table_name, "table name")->required();
  leftovers->add_option("--node", in.node_name, "node name")->required();
}

// Rows as files and back.
void AddRowFileVerbs(CLI::App& noun, Invocation& in) {
  const auto add = [&](const char* name, const char* help, auto verb) {
    CLI::App* added = AddVerb(noun, name, help, in, [&in, verb] {
      return in.WithClient(
          [&in, verb](client::Client& client) { return verb(client, in.row_files, in.output()); });
    });
    added->add_option("table", in.row_files.table, "table name")->required();
    added->add_option("directory", in.row_files.directory, "of *.safetensors files")->required();
    added->add_option("--tensor", in.row_files.tensor,
                      "name of the weights' tensor; default embedding_bags.TABLE.weight");
    return added;
  };
  CLI::App* write = add("export", "write rows, optimizer state and ids to files that PyTorch reads",
                        TableExportVerb);
  write->add_flag("!--no-state", in.row_files.with_state, "weights only");
  write->add_option("--file-size", in.row_files.file_bytes, "of rows in a file: bytes, or 64MiB")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64MiB");
  add("import", "set rows, and optimizer state if it is there, from such files", TableImportVerb);
}

void AddTableVerbs(CLI::App& app, Invocation& in) {
  CLI::App& noun = AddNoun(app, "table", "create, list, describe, change and drop tables");
  CLI::App* create =
      AddVerb(noun, "create", "create a table, or all of a file's, and wait until they are there",
              in, [&in] { return in.CreateTables(); });
  AddTableFlags(*create, in.table, "--nodes");
  create->add_flag("--if-not-exists", in.if_not_exists,
                   "tables that exist as they are asked for stay as they are; if one differs,\n"
                   "nothing is created, and every difference is named");

  CLI::App* list = AddAdminVerb(noun, "ls", "list the tables", in, [&in](client::Admin& admin) {
    return TableListVerb(admin, in.aside, in.output());
  });
  list->add_flag("--aside", in.aside,
                 "those that are kept and not served: the coordinator's state was restored from\n"
                 "a copy that did not know them");
  const auto add_name = [&in](CLI::App* verb) {
    verb->add_option("table", in.table_name, "table name")->required();
  };
  add_name(
      AddAdminVerb(noun, "describe", "everything about one table", in, [&in](client::Admin& admin) {
        return TableDescribeVerb(admin, in.table_name, in.output());
      }));
  CLI::App* drop =
      AddAdminVerb(noun, "drop", "drop a table with its rows", in, [&in](client::Admin& admin) {
        if (in.table_id != 0) return TableDropAsideVerb(admin, in.table_id, in.output());
        return TableDropVerb(admin, in.table_name, in.yes, std::cin, in.output());
      });
  CLI::Option* by_name = drop->add_option("table", in.table_name, "table name");
  drop->add_option("--id", in.table_id, "of a table that is kept aside, instead of a name")
      ->excludes(by_name);
  drop->add_flag("--yes", in.yes, "do not ask");
  AddAsideVerbs(noun, in);
  CLI::App* set =
      AddAdminVerb(noun, "set", "change hyper-parameters while training goes on", in,
                   [&in](client::Admin& admin) {
                     return TableSetVerb(admin, in.table_name, in.assignments, in.output());
                   });
  add_name(set);
  set->add_option("assignments", in.assignments, "key=value ..., as learning_rate=0.05")
      ->required();
  AddZchVerbs(noun, in);
  AddRowFileVerbs(noun, in);
  CLI::App* sync = AddVerb(noun, "sync", "average the replica groups of tables now", in, [&in] {
    return in.WithClient([&in](client::Client& client) {
      return TableSyncVerb(client, in.table_names, in.output());
    });
  });
  sync->add_option("tables", in.table_names, "table names; all tables with groups by default");
}

void AddPlanInputFlags(CLI::App& verb, PlanInputFlags& input, bool required) {
  verb.add_option("--tables", input.tables, "CSV, JSON or YAML file; may hold a whole problem")
      ->required(required);
  verb.add_option("--topology", input.topology, "as 2x8 (hosts x devices), or a JSON or YAML file");
  verb.add_option("--device-memory", input.device_memory, "with 2x8: as 80GiB; default 32GiB");
  verb.add_option("--constraints", input.constraints, "JSON or YAML file: rules by table");
  verb.add_option("--calibration", input.calibration, "JSON or YAML file: measured factors");
  verb.add_option("--batch", input.batch, "samples per device and step; default 512");
  verb.add_option("--reserve", input.reserve, "share of device memory kept free; default 0.15");
  verb.add_option("--cost", input.cost, "torchrec (default) or embla");
  verb.add_option("--replicas", input.replicas, "replica groups: a number, or auto; default 1");
}

// Without a cluster.
void AddPlannerVerbs(CLI::App& noun, Invocation& in) {
  CLI::App* solve =
      AddVerb(noun, "solve", "plan tables on machines, with a proof; asks no cluster but --cluster",
              in, [&in] { return in.SolvePlan(); });
  solve->add_flag("--cluster", in.solve_on_cluster,
                  "on the cluster's live nodes instead of --topology; keeps the plan there");
  AddPlanInputFlags(*solve, in.solve.input, true);
  solve->add_option("--prev", in.solve.prev, "a plan (-o json) to start from: moves little");
  solve
      ->add_option("--target-gap", in.solve.target_gap_percent,
                   "with --prev: percent above the bound that are good enough; less moves more")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  solve->add_option("--svg", in.solve.svg, "write a picture of loads and memory to this file");
  solve->add_flag("--check", in.solve.check, "let the independent checker accept the plan");
  solve->add_flag("--all", in.solve.all_tables, "show every table, not only the largest");
  CLI::App* check =
      AddVerb(noun, "check", "check a plan and its proof, without the solver's code", in,
              [&in] { return PlanCheckVerb(in.plan_file, in.solve.input, in.output()); });
  check->add_option("plan", in.plan_file, "what plan solve -o json printed")->required();
  AddPlanInputFlags(*check, in.solve.input, false);
}

// Plans of a cluster.
void AddClusterPlanVerbs(CLI::App& noun, Invocation& in) {
  CLI::App* apply =
      AddVerb(noun, "apply", "create a solved plan's tables where it says", in, [&in] {
        return in.WithCreator(
            [&in](client::Admin& admin) { return PlanApplyVerb(admin, in.apply, in.output()); });
      });
  apply->add_option("plan", in.apply.plan, "what plan solve -o json printed")->required();
  apply->add_option("--half", in.apply.half, "dtype of tables with 2-byte elements: bf16 or fp16")
      ->capture_default_str();
  apply->add_flag("--dry-run", in.apply.dry_run, "only say what would be created");
  CLI::App* diff =
      AddAdminVerb(noun, "diff", "what changed between two versions of the plan", in,
                   [&in](client::Admin& admin) {
                     return PlanDiffVerb(admin, in.from_version, in.to_version, in.output());
                   });
  diff->add_option("from", in.from_version, "default: the version before `to`");
  diff->add_option("to", in.to_version, "default: the current plan");
  CLI::App* explain = AddAdminVerb(
      noun, "explain", "why a table is cut as it is, and what comes next", in,
      [&in](client::Admin& admin) { return PlanExplainVerb(admin, in.table_name, in.output()); });
  explain->add_option("table", in.table_name, "table name")->required();
  CLI::App* history = AddAdminVerb(
      noun, "history", "what became of the plan, the newest first", in,
      [&in](client::Admin& admin) { return PlanHistoryVerb(admin, in.limit, in.output()); });
  history->add_option("--limit", in.limit, "changes shown; 0: all")->capture_default_str();
}

void AddPlanVerbs(CLI::App& app, Invocation& in) {
  CLI::App& noun = AddNoun(app, "plan", "which device holds what");
  CLI::App* show = AddAdminVerb(
      noun, "show", "rows x columns and bytes per device", in,
      [&in](client::Admin& admin) { return PlanShowVerb(admin, in.table_name, in.output()); });
  show->add_option("table", in.table_name, "only this table");
  CLI::App* table = AddVerb(noun, "table", "what `table create` would do; nothing is created", in,
                            [&in] { return in.PlanTable(); });
  AddTableFlags(*table, in.table, "--on-nodes");
  table->add_option("--nodes", in.stated.nodes, "plan on this many nodes; no cluster is asked");
  table->add_option("--devices-per-node", in.stated.devices_per_node, "with --nodes")
      ->capture_default_str();
  table->add_option("--memory-per-device", in.stated.device_memory_bytes, "bytes, or 64GiB")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64GiB");
  AddPlannerVerbs(noun, in);
  AddClusterPlanVerbs(noun, in);
}

// A verb that starts a job.
CLI::App* AddJobStart(CLI::App& noun, const std::string& name, const std::string& what,
                      Invocation& in, Invocation::MakeRequest make) {
  CLI::App* verb =
      AddVerb(noun, name, what, in, [&in, make = std::move(make)] { return in.StartJob(make); });
  verb->add_flag("--dry-run", in.job.dry_run, "only say what would move");
  verb->add_flag("--wait", in.wait, "show progress until it is over");
  verb->add_option("--rate", in.job.rate, "of each source node, as 1GiB/s; default: no limit");
  verb->add_option("--in-flight", in.job.units_in_flight, "units on the move at once; 0: 16");
  return verb;
}

void AddNodeVerbs(CLI::App& app, Invocation& in) {
  CLI::App& noun = AddNoun(app, "node", "shard servers");
  AddVerbs(noun, in, NodeVerbs());
  AddJobStart(noun, "drain", "move everything off a node; it gets nothing new", in, DrainRequest)
      ->add_option("node", in.job.node, "node name")
      ->required();
  CLI::App* forget =
      AddVerb(noun, "forget", "take a node that is down out of the cluster, for ever", in,
              [&in] { return in.ForgetNode(); });
  forget->add_option("node", in.job.node, "node name")->required();
  forget->add_flag("--lose-rows", in.lose_rows,
                   "give up rows that only this node has: they begin at initial values elsewhere");
  forget->add_flag("--wait", in.wait, "show progress until it is over");
  AddJobStart(noun, "undrain", "let a node have new slices again", in, UndrainRequest)
      ->add_option("node", in.job.node, "node name")
      ->required();
}

void AddMoveVerbs(CLI::App& app, Invocation& in) {
  CLI::App* reshard =
      AddJobStart(app, "reshard",
                  "spread a table's rows over another number of devices while it is\n"
                  "trained",
                  in, ReshardRequest);
  reshard->add_option("--table", in.job.table, "table name")->required();
  reshard->add_option("--shards", in.job.shards, "devices of each column cut")->required();
  CLI::App* move =
      AddJobStart(app, "move", "move row granules of a table to a device", in, MoveRequest);
  move->add_option("--table", in.job.table, "table name")->required();
  move->add_option("--granules", in.job.granules, "as 7 or 3-9, both included")->required();
  move->add_option("--to", in.job.to, "node or node:device")->required();
  AddJobStart(app, "rebalance", "even out the load of devices", in, RebalanceRequest);
}

void AddJobVerbs(CLI::App& app, Invocation& in) {
  CLI::App& noun = AddNoun(app, "job", "rows on the move");
  AddVerbs(noun, in, JobVerbs());
  AddVerb(noun, "watch", "show progress until it is over", in, [&in] { return in.WatchJob(); })
      ->add_option("job", in.job_id, "number of the job")
      ->required();
}

void AddCertsVerbs(CLI::App& app, Invocation& in) {
  CLI::App& noun = AddNoun(app, "certs", "certificates, for clusters without their own authority");
  const auto add = [&](const char* name, const char* help, auto verb) {
    return AddVerb(noun, name, help, in, [&in, verb] { return verb(in.certs, in.output()); });
  };
  const auto add_directory = [&in](CLI::App* verb) {
    verb->add_option("--dir", in.certs.directory, "directory of the authority")
        ->capture_default_str();
    return verb;
  };
  const auto add_days = [](CLI::App* verb, int& days, const char* what) {
    verb->add_option("--days", days, what)->check(CLI::Range(1, 36'500))->capture_default_str();
  };
  CLI::App* init = add_directory(add("init", "make an authority", CertsInitVerb));
  init->add_option("--cluster", in.certs.cluster, "the cluster's name: a-z 0-9 . - _")->required();
  add_days(init, in.certs.authority_days, "until the authority ends");
  CLI::App* issue =
      add_directory(add("issue", "make a certificate with its key, or renew it", CertsIssueVerb));
  issue
      ->add_option("--role", in.certs.role, "coordinator, node, trainer, reader, operator or admin")
      ->required();
  issue->add_option("--name", in.certs.name, "the node's or trainer's name")->required();
  issue->add_option("--out", in.certs.out, "file; default DIR/ROLE-NAME.pem");
  add_days(issue, in.certs.days, "until it ends");
  CLI::App* show = add("show", "whose certificates these are, and when they end", CertsShowVerb);
  show->add_option("files", in.certs.files, "files in PEM")->required();
  CLI::App* revoke = add_directory(
      add("revoke", "add certificates to the authority's list of revoked ones", CertsRevokeVerb));
  revoke->add_option("files", in.certs.files, "files in PEM; none: the list is made anew");
  add_days(revoke, in.certs.list_days, "until the list has to be made anew");
}

void AddOtherVerbs(CLI::App& app, Invocation& in) {
  CLI::App& cluster = AddNoun(app, "cluster", "the cluster as a whole");
  AddVerbs(cluster, in, ClusterVerbs());
  CLI::App* backup =
      AddVerb(cluster, "backup", "copy the coordinator's state directory, also while it runs", in,
              [&in] { return ClusterBackupVerb(in.state_directory, in.backup, in.output()); });
  backup->add_option("--state-dir", in.state_directory, "the coordinator's")->required();
  backup->add_option("--to", in.backup, "a directory that is missing or empty")->required();
  CLI::App* restore =
      AddVerb(cluster, "restore", "make a state directory from a backup", in,
              [&in] { return ClusterRestoreVerb(in.backup, in.state_directory, in.output()); });
  restore->add_option("--from", in.backup, "what cluster backup wrote")->required();
  restore->add_option("--state-dir", in.state_directory, "an empty directory")->required();
  CLI::App* explain =
      AddVerb(AddNoun(app, "id", "ids of ZCH tables"), "explain",
              "whether an id has a row, where, since when, and why not", in, [&in] {
                return in.WithClient([&in](client::Client& client) {
                  return IdExplainVerb(client, in.lookup.table, in.explained_id, in.output());
                });
              });
  explain->add_option("--table", in.lookup.table, "table name")->required();
  explain->add_option("id", in.explained_id, "any 64-bit number")->required();

  AddVerbs(app, in, VerifyVerbs());
  CLI::App* lookup = AddVerb(app, "lookup", "read a few rows", in, [&in] {
    return in.WithClient(
        [&in](client::Client& client) { return LookupVerb(client, in.lookup, in.output()); });
  });
  lookup->add_option("--table", in.lookup.table, "table name")->required();
  lookup->add_option("--ids", in.lookup.ids, "row ids, as 1,2,3")->delimiter(',')->required();
  lookup->add_option("--pooling", in.lookup.pooling, "none, or the ids as one bag: sum, mean")
      ->capture_default_str();
  lookup->add_option("--columns", in.lookup.columns_max, "columns; 0: all")->capture_default_str();
  lookup->add_option("--replica-group", in.lookup.replica_group, "whose copy, of several groups")
      ->capture_default_str();
}

// Reads a file as the servers' --config does.
absl::StatusOr<std::map<std::string, std::string>> ReadConfigFile(const std::string& path) {
  std::map<std::string, std::string> flags;
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
      flags[item.fullname()] = item.inputs.empty() ? "" : item.inputs.front();
    }
  } catch (const CLI::Error& error) {
    return absl::NotFoundError(error.what());
  }
  return flags;
}

void AddGlobalFlags(CLI::App& app, Invocation& in) {
  app.require_subcommand(1);
  app.fallthrough();  // -o and addresses may also stand after the verb.
  AddProgramFlags<CLI::CallForVersion>(app);
  app.add_option("--admin", in.admin_address, "the coordinators' admin addresses, with commas")
      ->envname("EMBLA_ADMIN")
      ->capture_default_str();
  app.add_option("--coordinator", in.coordinator_address,
                 "the coordinator's address, of several all with commas (lookup, id explain, table "
                 "sync, survey, sweep, "
                 "evictions, export, import)")
      ->envname("EMBLA_COORDINATOR")
      ->capture_default_str();
  AddTlsFlags(app, in.tls);
  AddTokenFlag(app, in.tls);
  app.add_option(
         "--timeout", in.timeout_seconds,
         "seconds to wait for an answer; table create waits as long as all its nodes are alive "
         "and work on it")
      ->check(CLI::Range(0.001, 86'400.0))
      ->capture_default_str();
  AddNamedOption(app, "-o,--output", in.json, {{"table", false}, {"json", true}}, "form of output")
      ->default_str("table");
  app.footer(
      "Exit codes: 0 ok, 1 error, 2 usage, 3 nobody answers, 4 not found, 5 refused (no room,\n"
      "exists already, wrong state). With -o json errors are JSON on stderr. Colours: on a\n"
      "terminal, unless NO_COLOR is set.");
}

int Main(int argc, char** argv) {
  SetLogLevel(LogLevel::kWarning);
  Invocation invocation;
  invocation.read_config = ReadConfigFile;
  CLI::App app("Embla: tables, nodes and plans of a cluster", "embla");
  AddGlobalFlags(app, invocation);
  AddOtherVerbs(app, invocation);
  AddNodeVerbs(app, invocation);
  AddMoveVerbs(app, invocation);
  AddJobVerbs(app, invocation);
  AddTableVerbs(app, invocation);
  AddVerbs(AddNoun(app, "journal", "the data directory of a shard server that is stopped"),
           invocation, JournalVerbs());
  AddCertsVerbs(app, invocation);
  AddVerbs(AddNoun(app, "state", "the coordinators' state, while none runs"), invocation,
           StateVerbs());
  AddVerbs(AddNoun(app, "log", "how much servers log"), invocation, LogVerbs());
  AddVerbs(AddNoun(app, "token", "tokens, for callers without certificates"), invocation,
           TokenVerbs());
  for (const auto verbs : {DoctorVerbs, HealthVerbs, TopVerbs}) AddVerbs(app, invocation, verbs());
  AddPlanVerbs(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0 || !invocation.json) return ExitAfterParse(app, error);
    invocation.run = [wrong = UsageMessage(app, error)] {
      return absl::InvalidArgumentError(wrong);
    };
  }
  const absl::Status status = invocation.run();
  if (!status.ok()) {
    std::cerr << ErrorText(status, invocation.json, Terminal::Of(STDERR_FILENO));
  }
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace embla::cli

int main(int argc, char** argv) { return embla::cli::Main(argc, argv); }
