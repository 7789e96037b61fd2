#include "tools/embla/zch_cmd.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

double Ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json ViewOf(const client::EvictedRow& row) {
  return {{"id", row.id},
          {"reason", row.reason},
          {"step", row.step},
          {"last_step", row.last_step},
          {"weights", std::vector<float>(row.weights.begin(), row.weights.end())},
          {"state", std::vector<float>(row.state.begin(), row.state.end())}};
}

void Put(const client::EvictedRow& row, const Output& output) {
  if (output.json) {
    if (row.missed > 0) output.out << Json({{"missed", row.missed}}).dump() << "\n";
    output.out << ViewOf(row).dump() << std::endl;
    return;
  }
  if (row.missed > 0) output.out << "missed " << row.missed << " evictions\n";
  output.out << "id " << row.id << " " << row.reason << " at step " << row.step
             << ", last touched at step " << row.last_step << std::endl;
}

}  // namespace

absl::Status TableSurveyVerb(client::Client& client, const std::string& table,
                             const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::TableSurvey survey, client.SurveyTable(table));
  const double occupancy = Ratio(survey.residents, survey.slots);
  const double mean_age = Ratio(survey.age_sum, survey.residents);
  if (output.json) {
    output.PutJson({{"table", table},
                    {"slots", survey.slots},
                    {"residents", survey.residents},
                    {"occupancy", occupancy},
                    {"full_groups", survey.full_groups},
                    {"waiting", survey.waiting},
                    {"latest_step", survey.latest_step},
                    {"mean_age_steps", mean_age},
                    {"oldest_age_steps", survey.oldest_age}});
    return absl::OkStatus();
  }
  TextTable text({"table", ">slots", ">ids", ">occupancy", ">full groups", ">waiting",
                  ">latest step", ">mean age", ">oldest"});
  text.Add({table, FormatCount(static_cast<std::int64_t>(survey.slots)),
            FormatCount(static_cast<std::int64_t>(survey.residents)),
            absl::StrFormat("%.3f", occupancy), absl::StrCat(survey.full_groups),
            absl::StrCat(survey.waiting), absl::StrCat(survey.latest_step),
            absl::StrFormat("%.1f", mean_age), absl::StrCat(survey.oldest_age)});
  output.out << text.Render();
  return absl::OkStatus();
}

absl::Status TableSweepVerb(client::Client& client, const std::string& table,
                            const client::SweepOptions& options, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::SweepReport report, client.SweepTable(table, options));
  if (output.json) {
    output.PutJson({{"table", table}, {"at_step", report.at_step}, {"evicted", report.evicted}});
  } else {
    output.out << "swept " << table << " as of step " << report.at_step << ": " << report.evicted
               << " ids lost their rows\n";
  }
  return absl::OkStatus();
}

absl::Status TableEvictionsVerb(client::Client& client, const std::string& table, bool follow,
                                const Output& output) {
  return client.ReadEvictions(
      table, follow, [&output](const client::EvictedRow& row) -> absl::Status {
        Put(row, output);
        if (output.out) return absl::OkStatus();
        return absl::UnavailableError("evictions cannot be written: is the disk full?");
      });
}

absl::Status TableEvictionsToFile(client::Client& client, const std::string& table, bool follow,
                                  const std::string& path) {
  std::ofstream file(path, std::ios::app);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("cannot write to ", path));
  return TableEvictionsVerb(client, table, follow, {.json = true, .out = file});
}

}  // namespace embla::cli
