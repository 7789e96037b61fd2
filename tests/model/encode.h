// The one byte string of a world, for telling worlds apart; and words for messages in traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/model/world.h"

namespace embla::model {

std::string Encode(const World& world);
// All of it but the messages.
std::string EncodeWithoutMessages(const World& world);
// Ascending; of all units.
std::vector<std::uint32_t> MessagesOf(const World& world);
std::string Encode(const Message& message);
std::string ToString(const Message& message);

}  // namespace embla::model
