#!/usr/bin/env bash
# A build of a small house fails at a header that does not compile alone, and at no other.
# Usage: tests/house/headers.sh CMAKE
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake=$1
house=$(mktemp -d)
trap 'rm -rf "$house"' EXIT

mkdir "$house/room"
cat >"$house/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(house LANGUAGES CXX)
option(EMBLA_TESTS "" ON)
include($PWD/cmake/embla_library.cmake)
add_subdirectory(room)
EOF
echo 'embla_library(room SRCS own.cc HDRS own.h alone.h)' >"$house/room/CMakeLists.txt"
echo 'int Own();' >"$house/room/own.h"
printf '#include "room/own.h"\n\nint Own() { return 1; }\n' >"$house/room/own.cc"
printf '#pragma once\n#include <string>\nstd::string Alone();\n' >"$house/room/alone.h"
"$cmake" -S "$house" -B "$house/build" -G Ninja >/dev/null
"$cmake" --build "$house/build" >"$house/out" || { cat "$house/out"; exit 1; }

# Without its include it does not compile, and neither does the house.
printf '#pragma once\nstd::string Alone();\n' >"$house/room/alone.h"
touch -d '1 minute' "$house/room/alone.h"  # Clocks of files are coarse: newer than its object.
if "$cmake" --build "$house/build" >"$house/out"; then
  echo "a header that does not compile alone was built"
  exit 1
fi
if ! grep -q 'room/alone.h:2' "$house/out"; then
  cat "$house/out"
  exit 1
fi
