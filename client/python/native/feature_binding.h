// Calls with arrays of their own for each feature, as methods of the Python class Client.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <nanobind/nanobind.h>

#include "client/python/native/client_handle.h"
#include "client/python/native/ticket.h"

namespace embla::python {

// `tuples`: (table, ids, lengths, offsets, weights, pooling, out) per feature; `result`: what the
// ticket returns. Raise TypeError for arrays of a wrong kind.
std::unique_ptr<Ticket> LookupFeatures(ClientHandle& handle, const nanobind::list& tuples,
                                       std::string_view wire, double timeout,
                                       bool combine_duplicates, nanobind::object result);
// `tuples`: (table, ids, lengths, offsets, weights, pooling, gradients, ttl_steps, learning rate or
// None) per feature.
std::unique_ptr<Ticket> UpdateFeatures(ClientHandle& handle, const nanobind::list& tuples,
                                       std::uint64_t step, std::string_view wire, double timeout,
                                       bool combine_duplicates);

}  // namespace embla::python
