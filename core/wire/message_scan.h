// Looks through a protobuf message before it is parsed.
//
// Parsed, a small message can be large: an empty submessage has 2 bytes on the wire and 50 and more
// in memory. So whoever takes messages from strangers counts their fields first.
#pragma once

#include <cstddef>
#include <string_view>

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"

namespace embla::wire {

struct ScanLimits {
  std::size_t bytes_max = std::size_t{1} << 20;
  std::size_t fields_max = 65'536;  // Fields of the message and all that it contains.
};

// Errors: InvalidArgument (too long, too many fields, nested too deeply, or not a message of this
// `type`; says where).
absl::Status ScanMessage(std::string_view bytes, const google::protobuf::Descriptor& type,
                         const ScanLimits& limits);

}  // namespace embla::wire
