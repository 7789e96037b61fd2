// Jobs of AdminService <-> what users see of them.
#pragma once

#include "client/include/embla/admin.h"
#include "embla/v1/admin.pb.h"

namespace embla::client {

v1::StartJobRequest ToMessage(const JobRequest& request);
// A state that this client does not know reads as running.
Job FromMessage(const v1::Job& message);

}  // namespace embla::client
