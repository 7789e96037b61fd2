#include "core/wire/frame.h"

#include <gtest/gtest.h>
