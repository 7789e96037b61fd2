// Lookups and updates as Python starts them: arrays become views, a Ticket keeps them.
#include "client/python/native/packed_binding.h"

#include <optional>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "absl/strings/str_cat.h"
#include "client/python/native/bindings.h"
#include "client/python/native/calls.h"
#include "client/python/native/errors.h"
#include "client/python/native/options.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

std::variant<std::span<const std::uint32_t>, std::span<const std::int64_t>> LengthsOf(
    const AnyIntegers& lengths) {
  const std::size_t size = lengths.size();
  if (lengths.dtype() == nb::dtype<std::int64_t>()) {
    return std::span(static_cast<const std::int64_t*>(lengths.data_handle()), size);
  }
  if (lengths.dtype() != nb::dtype<std::int32_t>() &&
      lengths.dtype() != nb::dtype<std::uint32_t>()) {
    throw nb::type_error("lengths must be an array of int32, uint32 or int64");
  }
  return std::span(static_cast<const std::uint32_t*>(lengths.data_handle()), size);
}

// One dimension: all floats; two: rows whose columns are contiguous. Strides of an empty array mean
// nothing.
template <typename Scalar>
PackedRows ShapeOf(const char* name, const Rows<Scalar>& array) {
  const bool empty = array.size() == 0;
  if (array.ndim() == 1) {
    if (!empty && array.stride(0) != 1 && array.shape(0) > 1) {
      throw nb::type_error(absl::StrCat(name, " must be contiguous").c_str());
    }
    return {.rows = 1, .columns = array.shape(0), .stride = array.shape(0), .flat = true};
  }
  if (array.ndim() != 2) {
    throw nb::type_error(absl::StrCat(name, " must have one or two dimensions").c_str());
  }
  const std::size_t columns = array.shape(1);
  const bool one_row = empty || array.shape(0) == 1;
  if ((!empty && columns > 1 && array.stride(1) != 1) ||
      (!one_row && array.stride(0) < static_cast<std::int64_t>(columns))) {
    throw nb::type_error(
        absl::StrCat(name, " must have contiguous columns, and rows that do not overlap").c_str());
  }
  return {.rows = array.shape(0),
          .columns = columns,
          .stride = one_row ? columns : static_cast<std::size_t>(array.stride(0))};
}

PackedIds IdsOf(const Ids& ids, const AnyIntegers& lengths, const std::optional<Floats>& weights,
                const std::optional<Ids>& batch_sizes) {
  PackedIds input{.ids = SpanOf(ids), .lengths = LengthsOf(lengths)};
  if (weights) input.weights = SpanOf(*weights);
  if (batch_sizes) input.batch_sizes = SpanOf(*batch_sizes);
  return input;
}

template <typename... Arrays>
KeptArrays Keep(const Arrays&... arrays) {
  KeptArrays kept;
  const auto keep = [&kept](const auto& array) {
    if constexpr (requires { array.has_value(); }) {
      if (array) kept.emplace_back(*array);
    } else {
      kept.emplace_back(array);
    }
  };
  (keep(arrays), ...);
  return kept;
}

// Starts `call`; its ticket keeps the arrays.
template <typename Call>
std::unique_ptr<Ticket> StartCall(ClientHandle& handle, CallKind kind, const Call& call,
                                  const client::CallOptions& options, KeptArrays arrays) {
  std::shared_ptr<client::Client> client = handle.Use();
  auto completion = std::make_shared<Completion>();
  absl::Status started;
  {
    const nb::gil_scoped_release no_gil;
    started = Start(*client, call, options, completion);
    client.reset();
  }
  Check(started);
  if (kind == CallKind::kWrite) handle.Track(completion);
  return std::make_unique<Ticket>(kind, std::move(completion), std::move(arrays), nb::none(),
                                  handle.parked());
}

}  // namespace

std::unique_ptr<Ticket> LookupPacked(ClientHandle& handle,
                                     const std::shared_ptr<FeatureSet>& features, const Ids& ids,
                                     const AnyIntegers& lengths,
                                     const std::optional<Floats>& weights, const Rows<float>& out,
                                     const std::optional<Ids>& batch_sizes, std::string_view wire,
                                     double timeout) {
  const PackedLookup call{.features = features,
                          .input = IdsOf(ids, lengths, weights, batch_sizes),
                          .shape = ShapeOf("out", out),
                          .rows = out.data()};
  return StartCall(handle, CallKind::kRead, call, MakeCallOptions(wire, timeout),
                   Keep(ids, lengths, weights, out, batch_sizes));
}

std::unique_ptr<Ticket> UpdatePacked(
    ClientHandle& handle, const std::shared_ptr<FeatureSet>& features, const Ids& ids,
    const AnyIntegers& lengths, const std::optional<Floats>& weights,
    const Rows<const float>& gradients, const std::optional<Ids>& batch_sizes, std::uint64_t step,
    const std::optional<Floats>& learning_rates, std::string_view wire, double timeout) {
  PackedUpdate call{.features = features,
                    .input = IdsOf(ids, lengths, weights, batch_sizes),
                    .shape = ShapeOf("gradients", gradients),
                    .gradients = gradients.data()};
  if (learning_rates) call.learning_rates = SpanOf(*learning_rates);
  client::CallOptions options = MakeCallOptions(wire, timeout);
  options.step = step;
  return StartCall(handle, CallKind::kWrite, call, options,
                   Keep(ids, lengths, weights, gradients, batch_sizes, learning_rates));
}

void BindFeatures(nb::module_& module) {
  using Triple = std::tuple<std::string, std::string, std::uint32_t>;
  nb::class_<FeatureSet>(module, "FeatureSet",
                         "The features of a module, as packed calls take them.\n\n"
                         "`features`: (table, pooling \"none\", \"sum\" or \"mean\", dim) each, in "
                         "the order of the arrays.")
      .def(
          "__init__",
          [](FeatureSet* self, const std::vector<Triple>& triples) {
            std::vector<FeatureSet::Feature> features;
            for (const auto& [table, pooling, dim] : triples) {
              features.push_back({.table = table, .pooling = PoolingFromName(pooling), .dim = dim});
            }
            absl::StatusOr<FeatureSet> made = FeatureSet::Make(std::move(features));
            Check(made.status());
            new (self) FeatureSet(*std::move(made));
          },
          nb::arg("features"))
      .def("__len__", [](const FeatureSet& set) { return set.features().size(); })
      .def_prop_ro("columns", &FeatureSet::columns, "The sum of all dims.")
      .def_prop_ro("pooled", &FeatureSet::pooled, "Whether rows are per bag, not per id.")
      .def_prop_ro(
          "tables",
          [](const FeatureSet& set) {
            std::vector<std::string> tables;
            for (const FeatureSet::Feature& feature : set.features()) {
              tables.push_back(feature.table);
            }
            return tables;
          },
          "The table of each feature.");
}

}  // namespace embla::python
