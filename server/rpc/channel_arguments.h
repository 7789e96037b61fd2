// How a server calls another server.
#pragma once

#include <grpcpp/support/channel_arguments.h>

#include "absl/time/time.h"

namespace embla {

// Reconnects after at most `backoff_max`; a peer that vanished is noticed within 15 s. Replies may
// be of any size.
grpc::ChannelArguments PeerChannelArguments(absl::Duration backoff_max);

// The same to one of several coordinators, which is noticed within 3 s: another one may lead.
grpc::ChannelArguments MemberChannelArguments(absl::Duration backoff_max);

}  // namespace embla
