// Calls with arrays of their own for each feature: the NumPy level of the package.
#include "client/python/native/feature_binding.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>

#include "absl/strings/str_cat.h"
#include "client/python/native/arrays.h"
#include "client/python/native/options.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

// A feature's tuple holds these, in this order; the last is rows_out or gradients.
constexpr int kTable = 0, kIds = 1, kLengths = 2, kOffsets = 3, kWeights = 4, kPooling = 5,
              kRows = 6, kTtlSteps = 7, kLearningRate = 8;

// The arrays of one feature, and what names it: both live until the call is over.
struct FeatureArrays {
  std::string table;
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> lengths;
  std::span<const std::int64_t> offsets;
  std::span<const float> weights;
  client::Pooling pooling = client::Pooling::kNone;
};

class FieldReader {
 public:
  FieldReader(const nb::tuple& fields, std::size_t position, KeptArrays& kept)
      : fields_(fields), position_(position), kept_(kept) {}

  // `kind` names what the field must be. Raises TypeError.
  template <typename Array>
  Array Get(int field, const char* name, const char* kind) {
    Array array;
    if (!nb::try_cast(fields_[field], array, /*convert=*/false)) {
      throw nb::type_error(
          absl::StrCat("feature ", position_, ": ", name, " must be ", kind).c_str());
    }
    kept_.emplace_back(array);
    return array;
  }
  template <typename Array>
  Array GetOptional(int field, const char* name, const char* kind) {
    return fields_[field].is_none() ? Array() : Get<Array>(field, name, kind);
  }

  FeatureArrays Read() {
    FeatureArrays feature;
    feature.table = nb::cast<std::string>(fields_[kTable]);
    feature.ids = SpanOf(Get<Ids>(kIds, "ids", "a contiguous array of int64, of one dimension"));
    feature.lengths = SpanOf(GetOptional<Vector<const std::uint32_t>>(
        kLengths, "lengths", "a contiguous array of uint32, of one dimension"));
    feature.offsets = SpanOf(
        GetOptional<Ids>(kOffsets, "offsets", "a contiguous array of int64, of one dimension"));
    feature.weights = SpanOf(GetOptional<Floats>(
        kWeights, "weights", "a contiguous array of float32, of one dimension"));
    feature.pooling = PoolingFromName(nb::cast<std::string>(fields_[kPooling]));
    return feature;
  }

 private:
  const nb::tuple& fields_;
  const std::size_t position_;
  KeptArrays& kept_;
};

// Features by name: the views of a call in flight point to the tables' names.
template <typename View>
struct FeatureCall {
  std::vector<FeatureArrays> features;
  std::vector<View> views;
  KeptArrays kept;
};

client::FeatureLookup ViewOf(const FeatureArrays& feature) {
  return {.table = feature.table,
          .ids = feature.ids,
          .lengths = feature.lengths,
          .offsets = feature.offsets,
          .weights = feature.weights,
          .pooling = feature.pooling};
}

client::FeatureGradient GradientOf(const FeatureArrays& feature) {
  return {.table = feature.table,
          .ids = feature.ids,
          .lengths = feature.lengths,
          .offsets = feature.offsets,
          .weights = feature.weights,
          .pooling = feature.pooling};
}

}  // namespace

std::unique_ptr<Ticket> LookupFeatures(ClientHandle& handle, const nb::list& tuples,
                                       std::string_view wire, double timeout,
                                       bool combine_duplicates, nb::object result) {
  auto call = std::make_shared<FeatureCall<client::FeatureLookup>>();
  call->features.reserve(tuples.size());  // Views point into it.
  for (std::size_t i = 0; i < tuples.size(); ++i) {
    const auto fields = nb::cast<nb::tuple>(tuples[i]);
    FieldReader reader(fields, i, call->kept);
    call->views.push_back(ViewOf(call->features.emplace_back(reader.Read())));
    call->views.back().rows_out = SpanOf(reader.Get<Matrix<float>>(
        kRows, "out", "a contiguous array of float32, of two dimensions, that can be written"));
  }
  client::CallOptions options = MakeCallOptions(wire, timeout);
  options.combine_duplicates = combine_duplicates;
  std::shared_ptr<client::Client> client = handle.Use();
  auto completion = std::make_shared<Completion>();
  KeptArrays kept = std::move(call->kept);
  {
    const nb::gil_scoped_release no_gil;
    client->LookupAsync(std::move(call->views), options, [call, completion](absl::Status status) {
      completion->Set(std::move(status));
    });
    client.reset();
  }
  return std::make_unique<Ticket>(CallKind::kRead, std::move(completion), std::move(kept),
                                  std::move(result), handle.parked());
}

std::unique_ptr<Ticket> UpdateFeatures(ClientHandle& handle, const nb::list& tuples,
                                       std::uint64_t step, std::string_view wire, double timeout,
                                       bool combine_duplicates) {
  auto call = std::make_shared<FeatureCall<client::FeatureGradient>>();
  call->features.reserve(tuples.size());
  for (std::size_t i = 0; i < tuples.size(); ++i) {
    const auto fields = nb::cast<nb::tuple>(tuples[i]);
    FieldReader reader(fields, i, call->kept);
    call->views.push_back(GradientOf(call->features.emplace_back(reader.Read())));
    call->views.back().gradients = SpanOf(reader.Get<Matrix<const float>>(
        kRows, "gradients", "a contiguous array of float32, of two dimensions"));
    call->views.back().ttl_steps = nb::cast<std::uint32_t>(fields[kTtlSteps]);
    if (!fields[kLearningRate].is_none()) {
      call->views.back().learning_rate = nb::cast<float>(fields[kLearningRate]);
    }
  }
  client::CallOptions options = MakeCallOptions(wire, timeout);
  options.combine_duplicates = combine_duplicates;
  options.step = step;
  std::shared_ptr<client::Client> client = handle.Use();
  auto completion = std::make_shared<Completion>();
  KeptArrays kept = std::move(call->kept);
  {
    const nb::gil_scoped_release no_gil;
    client->UpdateAsync(std::move(call->views), options, [call, completion](absl::Status status) {
      completion->Set(std::move(status));
    });
    client.reset();
  }
  handle.Track(completion);
  return std::make_unique<Ticket>(CallKind::kWrite, std::move(completion), std::move(kept),
                                  nb::none(), handle.parked());
}

}  // namespace embla::python
