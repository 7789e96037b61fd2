// Names of what a node says of the turns of its requests.
#pragma once

#include "core/metrics/names.h"

namespace embla::metric {

inline constexpr MetricInfo kRequestWait{
    "embla_request_wait_seconds", kHistogram,
    "From a request's arrival at its node to its start on the first of its devices."};

}  // namespace embla::metric
