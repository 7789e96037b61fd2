#include "core/plan/names.h"

#include <array>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla {
namespace {

template <typename Enum>
struct Name {
  Enum value;
  std::string_view name;
};

// The names that the kinds' traits have.
template <typename Enum, std::size_t kCount>
constexpr std::array<Name<Enum>, kCount> NamesOf(const std::array<Enum, kCount>& kinds) {
  std::array<Name<Enum>, kCount> names{};
  for (std::size_t i = 0; i < kCount; ++i) names[i] = {kinds[i], TraitsOf(kinds[i]).name};
  return names;
}

// The enum's name in messages, and the names of its values in the order they are listed.
template <typename Enum>
struct Words;

template <>
struct Words<DType> {
  static constexpr std::string_view kWhat = "dtype";
  static constexpr std::array<Name<DType>, 4> kNames = {{{DType::kFloat32, "fp32"},
                                                         {DType::kFloat16, "fp16"},
                                                         {DType::kBFloat16, "bf16"},
                                                         {DType::kInt8Rowwise, "int8"}}};
};

template <>
struct Words<ShardingType> {
  static constexpr std::string_view kWhat = "sharding type";
  static constexpr auto kNames = NamesOf(kShardingTypes);
};

template <>
struct Words<OptimizerKind> {
  static constexpr std::string_view kWhat = "optimizer";
  static constexpr auto kNames = NamesOf(kOptimizerKinds);
};

template <>
struct Words<WeightDecayMode> {
  static constexpr std::string_view kWhat = "weight_decay_mode";
  static constexpr std::array<Name<WeightDecayMode>, 3> kNames = {
      {{WeightDecayMode::kNone, "none"},
       {WeightDecayMode::kL2, "l2"},
       {WeightDecayMode::kDecoupled, "decoupled"}}};
};

template <>
struct Words<BiasCorrection> {
  static constexpr std::string_view kWhat = "bias_correction";
  static constexpr std::array<Name<BiasCorrection>, 2> kNames = {
      {{BiasCorrection::kRow, "row"}, {BiasCorrection::kStep, "step"}}};
};

template <>
struct Words<Rounding> {
  static constexpr std::string_view kWhat = "rounding";
  static constexpr std::array<Name<Rounding>, 2> kNames = {
      {{Rounding::kNearest, "nearest"}, {Rounding::kStochastic, "stochastic"}}};
};

template <>
struct Words<BoundsMode> {
  static constexpr std::string_view kWhat = "bounds";
  static constexpr std::array<Name<BoundsMode>, 2> kNames = {
      {{BoundsMode::kError, "error"}, {BoundsMode::kIgnore, "ignore"}}};
};

template <>
struct Words<NanPolicy> {
  static constexpr std::string_view kWhat = "nan_policy";
  static constexpr std::array<Name<NanPolicy>, 2> kNames = {
      {{NanPolicy::kReject, "reject"}, {NanPolicy::kAllow, "allow"}}};
};

template <>
struct Words<TableDurability> {
  static constexpr std::string_view kWhat = "durability";
  static constexpr std::array<Name<TableDurability>, 4> kNames = {
      {{TableDurability::kNode, "node"},
       {TableDurability::kQueued, "queued"},
       {TableDurability::kWritten, "written"},
       {TableDurability::kSynced, "synced"}}};
};

template <>
struct Words<DeviceKind> {
  static constexpr std::string_view kWhat = "device kind";
  static constexpr std::array<Name<DeviceKind>, 2> kNames = {
      {{DeviceKind::kCpu, "cpu"}, {DeviceKind::kGpu, "gpu"}}};
};

template <>
struct Words<InitKind> {
  static constexpr std::string_view kWhat = "init kind";
  static constexpr std::array<Name<InitKind>, 4> kNames = {{{InitKind::kDefault, "default"},
                                                            {InitKind::kConstant, "constant"},
                                                            {InitKind::kUniform, "uniform"},
                                                            {InitKind::kNormal, "normal"}}};
};

template <>
struct Words<OnSilence> {
  static constexpr std::string_view kWhat = "sync on_silence";
  static constexpr std::array<Name<OnSilence>, 2> kNames = {
      {{OnSilence::kClose, "close"}, {OnSilence::kFail, "fail"}}};
};

template <>
struct Words<MemberChange::Kind> {
  static constexpr std::string_view kWhat = "change of members";
  static constexpr std::array<Name<MemberChange::Kind>, 3> kNames = {
      {{MemberChange::Kind::kJoin, "join"},
       {MemberChange::Kind::kClose, "close"},
       {MemberChange::Kind::kFail, "fail"}}};
};

template <>
struct Words<zch::Policy> {
  static constexpr std::string_view kWhat = "zch policy";
  static constexpr std::array<Name<zch::Policy>, 4> kNames = {
      {{zch::Policy::kLru, "lru"},
       {zch::Policy::kLfu, "lfu"},
       {zch::Policy::kDistanceLfu, "distance_lfu"},
       {zch::Policy::kTtl, "ttl"}}};
};

template <>
struct Words<zch::Admission> {
  static constexpr std::string_view kWhat = "zch admission";
  static constexpr std::array<Name<zch::Admission>, 3> kNames = {
      {{zch::Admission::kAll, "all"},
       {zch::Admission::kCount, "count"},
       {zch::Admission::kProbability, "probability"}}};
};

template <>
struct Words<zch::Unseen> {
  static constexpr std::string_view kWhat = "zch unseen";
  static constexpr std::array<Name<zch::Unseen>, 4> kNames = {{{zch::Unseen::kInitial, "initial"},
                                                               {zch::Unseen::kDefault, "default"},
                                                               {zch::Unseen::kZero, "zero"},
                                                               {zch::Unseen::kError, "error"}}};
};

template <typename Enum>
std::string_view Find(Enum value) {
  for (const Name<Enum>& entry : Words<Enum>::kNames) {
    if (entry.value == value) return entry.name;
  }
  return {};
}

}  // namespace

std::string_view NameOf(DType value) { return Find(value); }
std::string_view NameOf(ShardingType value) { return Find(value); }
std::string_view NameOf(OptimizerKind value) { return Find(value); }
std::string_view NameOf(WeightDecayMode value) { return Find(value); }
std::string_view NameOf(BiasCorrection value) { return Find(value); }
std::string_view NameOf(Rounding value) { return Find(value); }
std::string_view NameOf(BoundsMode value) { return Find(value); }
std::string_view NameOf(NanPolicy value) { return Find(value); }
std::string_view NameOf(TableDurability value) { return Find(value); }
std::string_view NameOf(DeviceKind value) { return Find(value); }
std::string_view NameOf(InitKind value) { return Find(value); }
std::string_view NameOf(OnSilence value) { return Find(value); }
std::string_view NameOf(MemberChange::Kind value) { return Find(value); }
std::string_view NameOf(zch::Policy value) { return Find(value); }
std::string_view NameOf(zch::Admission value) { return Find(value); }
std::string_view NameOf(zch::Unseen value) { return Find(value); }

template <typename Enum>
std::string AllNames() {
  std::string names;
  for (const Name<Enum>& entry : Words<Enum>::kNames) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", ToAbsl(entry.name));
  }
  return names;
}

template std::string AllNames<OptimizerKind>();
template std::string AllNames<ShardingType>();

template <typename Enum>
absl::StatusOr<Enum> FromName(std::string_view name) {
  for (const Name<Enum>& entry : Words<Enum>::kNames) {
    if (entry.name == name) return entry.value;
  }
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(Words<Enum>::kWhat), " \"",
                                                 ToAbsl(name.substr(0, 40)), "\" is not one of ",
                                                 AllNames<Enum>()));
}

template absl::StatusOr<DType> FromName(std::string_view name);
template absl::StatusOr<ShardingType> FromName(std::string_view name);
template absl::StatusOr<OptimizerKind> FromName(std::string_view name);
template absl::StatusOr<WeightDecayMode> FromName(std::string_view name);
template absl::StatusOr<BiasCorrection> FromName(std::string_view name);
template absl::StatusOr<Rounding> FromName(std::string_view name);
template absl::StatusOr<BoundsMode> FromName(std::string_view name);
template absl::StatusOr<NanPolicy> FromName(std::string_view name);
template absl::StatusOr<TableDurability> FromName(std::string_view name);
template absl::StatusOr<DeviceKind> FromName(std::string_view name);
template absl::StatusOr<InitKind> FromName(std::string_view name);
template absl::StatusOr<OnSilence> FromName(std::string_view name);
template absl::StatusOr<MemberChange::Kind> FromName(std::string_view name);
template absl::StatusOr<zch::Policy> FromName(std::string_view name);
template absl::StatusOr<zch::Admission> FromName(std::string_view name);
template absl::StatusOr<zch::Unseen> FromName(std::string_view name);

}  // namespace embla
