// Counts a node's part of a ZCH table, for operators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "server/table/device_executor.h"
#include "server/table/table_shard.h"
#include "server/zch/statistics.h"

namespace embla {

using SurveyDone = std::function<void(absl::StatusOr<zch::Survey>)>;

// Reads what is known of all ids of the table, each device its own.
class SurveyTask final : public DeviceTask {
 public:
  // Requires: a ZCH table; `devices` of the node. Ages are up to `step`.
  SurveyTask(std::shared_ptr<TableShard> shard, std::uint32_t devices, std::uint64_t step,
             SurveyDone done)
      : shard_(std::move(shard)),
        step_(step),
        surveys_(devices, zch::Survey{}),
        done_(std::move(done)) {}

  void Run(std::uint32_t device) override {
    for (const OwnSlice& own : shard_->slices(device)) {
      if (own.ids == nullptr || !surveys_[device].ok()) continue;
      absl::StatusOr<zch::Survey> survey = own.ids->Survey(step_, own.present);
      if (survey.ok()) *survey += *surveys_[device];
      surveys_[device] = std::move(survey);
    }
  }
  void Finish() override {
    zch::Survey all;
    for (const absl::StatusOr<zch::Survey>& survey : surveys_) {
      if (!survey.ok()) return done_(survey.status());
      all += *survey;
    }
    done_(all);
  }

 private:
  const std::shared_ptr<TableShard> shard_;
  const std::uint64_t step_;
  std::vector<absl::StatusOr<zch::Survey>> surveys_;  // By device.
  const SurveyDone done_;
};

}  // namespace embla
