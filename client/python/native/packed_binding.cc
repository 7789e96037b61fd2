// Lookups and updates as Python starts them: arrays become views, a Ticket keeps them.
#include "client/python/native/packed_binding.h"

#include <optional>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "absl/strings/str_cat.h"
#include "client/python/native/bindings.h"
#include "client/python/native/calls.h"
#include "client/python/native/errors.h"
#include "client/python/native/exporter.h"
#include "client/python/native/options.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

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

// Raises TypeError for arrays of a wrong kind, InvalidArgumentError for sizes that do not fit.
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

// Takes tensors, too, and waits: a small call costs much less than with what Python would do for
// it.
void LookupPackedNow(ClientHandle& handle, const std::shared_ptr<FeatureSet>& features,
                     nb::handle ids, nb::handle lengths, nb::handle weights, nb::handle out,
                     nb::handle batch_sizes, std::string_view wire, double timeout) {
  Exporter exporter;
  std::optional<Floats> factors;
  std::optional<Ids> sizes;
  if (!weights.is_none()) {
    factors = exporter.Get<Floats>(weights, "weights", "float32, of one dimension");
  }
  if (!batch_sizes.is_none()) {
    sizes = exporter.Get<Ids>(batch_sizes, "batch_sizes", "int64, of one dimension");
  }
  LookupPacked(handle, features, exporter.Get<Ids>(ids, "ids", "int64, of one dimension"),
               exporter.Get<AnyIntegers>(lengths, "lengths", "integers, of one dimension"), factors,
               exporter.Get<Rows<float>>(out, "out", "float32, and writable"), sizes, wire, timeout)
      ->Wait(std::nullopt);
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

}  // namespace

void BindPackedCalls(nb::class_<ClientHandle>& binding) {
  binding.def("lookup_packed", &LookupPacked, "features"_a, nb::arg("ids").noconvert(),
              nb::arg("lengths").noconvert(), nb::arg("weights").noconvert().none(),
              nb::arg("out").noconvert(), nb::kw_only(),
              nb::arg("batch_sizes").noconvert().none() = nb::none(), "wire"_a = "fp32",
              "timeout"_a = 0.0,
              "Starts a lookup of all features of a set, into `out`.\n\n"
              "ids: int64 [N], all of the first feature, then all of the second, and so on.\n"
              "lengths: int32, uint32 or int64 [F * B]: how many ids each bag has, in that order.\n"
              "weights: float32 [N] or None.\n"
              "out: float32 [B, sum of dims]; of unpooled features [N, dim]. Rows may lie apart.\n"
              "batch_sizes: int64 [F], where features differ in B; lengths is then [sum of B], and "
              "out is flat: a block [B, dim] per feature.\n"
              "timeout: seconds; 0: the client's.");
  binding.def("lookup_packed_now", &LookupPackedNow, "features"_a, "ids"_a, "lengths"_a,
              "weights"_a.none(), "out"_a, nb::kw_only(), "batch_sizes"_a = nb::none(),
              "wire"_a = "fp32", "timeout"_a = 0.0,
              "Does what lookup_packed starts, and waits for it. Takes tensors of torch, too.");
  binding.def("update_packed", &UpdatePacked, "features"_a, nb::arg("ids").noconvert(),
              nb::arg("lengths").noconvert(), nb::arg("weights").noconvert().none(),
              nb::arg("gradients").noconvert(), nb::kw_only(),
              nb::arg("batch_sizes").noconvert().none() = nb::none(), "step"_a = 0,
              nb::arg("learning_rates").noconvert().none() = nb::none(), "wire"_a = "fp32",
              "timeout"_a = 0.0,
              "Starts one optimizer step with the gradients of what lookup_packed returned, shaped "
              "alike.\n\n"
              "step: the training step; 0: the update's own number.\n"
              "learning_rates: float32 [F], or None: the tables' own.");
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
