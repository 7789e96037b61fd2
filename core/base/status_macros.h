// EMBLA_RETURN_IF_ERROR and EMBLA_ASSIGN_OR_RETURN: errors as values without the noise.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define EMBLA_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                     \
    if (absl::Status embla_status = (expression); !embla_status.ok()) return embla_status; \
  } while (false)

#define EMBLA_CONCAT_INNER(a, b) a##b
#define EMBLA_CONCAT(a, b) EMBLA_CONCAT_INNER(a, b)
#define EMBLA_ASSIGN_OR_RETURN(target, expression) \
  EMBLA_ASSIGN_OR_RETURN_INNER(EMBLA_CONCAT(embla_status_or_, __LINE__), target, expression)
#define EMBLA_ASSIGN_OR_RETURN_INNER(temporary, target, expression) \
  auto temporary = (expression);                                    \
  if (!temporary.ok()) return std::move(temporary).status();        \
  target = std::move(temporary).value()
