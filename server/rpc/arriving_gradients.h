// Looks for NaN in the gradients of an update while they are copied out of a gRPC message, when
// they are in the processor's caches for that.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/rows/request.h"
#include "core/wire/large_fields.h"
#include "embla/v1/data.pb.h"
#include "server/table/finite_check.h"

namespace embla {

class ArrivingGradients {
 public:
  // The decoder's argument. Requires: this object outlives it.
  wire::FieldFilled filled() {
    return [this](int number, std::span<const std::byte> field, std::size_t filled) {
      if (number != v1::UpdateRequest::kGradientsFieldNumber) return;
      // A field that comes again takes the place of the one before. Its numbers may be of another
      // format, which is not known before the message has been read.
      if (filled == 0) numbers_.emplace(field.data(), field.size(), DType::kFloat32);
      numbers_->Filled(filled);
    };
  }
  // Tells `batch`, which was decoded with the argument, what was seen.
  void NoteIn(UpdateBatch& batch) const {
    batch.gradients_are_finite =
        batch.wire_dtype == DType::kFloat32 && numbers_.has_value() && numbers_->are_finite();
  }

 private:
  std::optional<ArrivingNumbers> numbers_;
};

}  // namespace embla
