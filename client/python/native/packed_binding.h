// Packed calls, as methods of the Python class Client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "client/python/native/arrays.h"
#include "client/python/native/client_handle.h"
#include "client/python/native/features.h"
#include "client/python/native/ticket.h"

namespace embla::python {

// Raise TypeError for arrays of a wrong kind, InvalidArgumentError for sizes that do not fit.
std::unique_ptr<Ticket> LookupPacked(ClientHandle& handle,
                                     const std::shared_ptr<FeatureSet>& features, const Ids& ids,
                                     const AnyIntegers& lengths,
                                     const std::optional<Floats>& weights, const Rows<float>& out,
                                     const std::optional<Ids>& batch_sizes, std::string_view wire,
                                     double timeout);
std::unique_ptr<Ticket> UpdatePacked(
    ClientHandle& handle, const std::shared_ptr<FeatureSet>& features, const Ids& ids,
    const AnyIntegers& lengths, const std::optional<Floats>& weights,
    const Rows<const float>& gradients, const std::optional<Ids>& batch_sizes, std::uint64_t step,
    const std::optional<Floats>& learning_rates, std::string_view wire, double timeout);

}  // namespace embla::python
