#include "core/socket/frame_socket.h"

#include <gtest/gtest.h>
