// Arrays as the bindings take them. With `noconvert` on the argument, an array of another dtype or
// rank, with gaps, or read-only where it is written, raises TypeError.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace embla::python {

template <typename Scalar>
using Vector = nanobind::ndarray<nanobind::numpy, Scalar, nanobind::ndim<1>, nanobind::c_contig,
                                 nanobind::device::cpu>;
template <typename Scalar>
using Matrix = nanobind::ndarray<nanobind::numpy, Scalar, nanobind::ndim<2>, nanobind::c_contig,
                                 nanobind::device::cpu>;
using Ids = Vector<const std::int64_t>;
using Floats = Vector<const float>;
using AnyIntegers = nanobind::ndarray<nanobind::numpy, nanobind::ro, nanobind::ndim<1>,
                                      nanobind::c_contig, nanobind::device::cpu>;
// The receiver of an array checks the gaps between its rows.
template <typename Scalar>
using Rows = nanobind::ndarray<nanobind::numpy, Scalar, nanobind::device::cpu>;

template <typename Scalar, typename... Options>
std::span<Scalar> SpanOf(const nanobind::ndarray<nanobind::numpy, Scalar, Options...>& array) {
  return {array.data(), array.size()};
}

// An array of one dimension that owns its numbers.
template <typename Scalar>
nanobind::object ArrayOf(std::vector<Scalar> numbers) {
  auto* owned = new std::vector<Scalar>(std::move(numbers));
  const nanobind::capsule owner(
      owned, [](void* memory) noexcept { delete static_cast<std::vector<Scalar>*>(memory); });
  return nanobind::ndarray<nanobind::numpy, Scalar, nanobind::ndim<1>>(owned->data(),
                                                                       {owned->size()}, owner)
      .cast();
}

}  // namespace embla::python
