// The words users type and read for every enum of a table: "fp32", "row_wise", "rowwise_adagrad".
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"

namespace embla {

// Empty for a value outside the enum.
std::string_view NameOf(DType value);               // fp32 fp16 bf16 int8
std::string_view NameOf(ShardingType value);        // data_parallel table_wise column_wise ...
std::string_view NameOf(OptimizerKind value);       // sgd rowwise_adagrad ...
std::string_view NameOf(WeightDecayMode value);     // none l2 decoupled
std::string_view NameOf(BiasCorrection value);      // row step
std::string_view NameOf(Rounding value);            // nearest stochastic
std::string_view NameOf(BoundsMode value);          // error ignore
std::string_view NameOf(NanPolicy value);           // reject allow
std::string_view NameOf(TableDurability value);     // node queued written synced
std::string_view NameOf(DeviceKind value);          // cpu gpu
std::string_view NameOf(InitKind value);            // default constant uniform normal
std::string_view NameOf(OnSilence value);           // close fail
std::string_view NameOf(MemberChange::Kind value);  // join close fail
std::string_view NameOf(zch::Policy value);         // lru lfu distance_lfu ttl
std::string_view NameOf(zch::Admission value);      // all count probability
std::string_view NameOf(zch::Unseen value);         // initial default zero error

// "sgd, rowwise_adagrad, ..."; for OptimizerKind and ShardingType.
template <typename Enum>
std::string AllNames();

// The value called `name`. InvalidArgument lists the allowed names.
template <typename Enum>
absl::StatusOr<Enum> FromName(std::string_view name);

}  // namespace embla
