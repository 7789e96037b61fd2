// Tensors as packed calls take them.
#pragma once

#include <cstdint>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "client/python/native/errors.h"

namespace embla::python {

// Exports the arrays of one call. A type of arrays may offer C functions for that, as torch's does
// since 2.10 (DLPack 1.2, `__dlpack_c_exchange_api__`): a capsule of theirs costs a tenth of what
// `__dlpack__` costs, which nanobind would call.
class Exporter {
 public:
  // `name` and `kind` say what the argument must be. Raises TypeError.
  template <typename Array>
  Array Get(nanobind::handle object, const char* name, const char* kind) {
    Array array;
    if (!nanobind::try_cast(Capsule(object), array, /*convert=*/false)) {
      RaiseTypeError(name, kind);
    }
    return array;
  }

 private:
  struct Managed;    // DLManagedTensorVersioned
  struct Functions;  // DLPackExchangeAPI

  // `object` itself where its type has no such functions.
  nanobind::object Capsule(nanobind::handle object);
  const Functions* FunctionsOf(nanobind::handle type);
  [[noreturn]] static void RaiseTypeError(const char* name, const char* kind);

  nanobind::handle type_;  // The last one that was asked for its functions.
  const Functions* functions_ = nullptr;
};

}  // namespace embla::python
