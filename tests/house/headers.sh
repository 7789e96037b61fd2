#!/usr/bin/env bash
# A build of a small house fails at a header that does not compile alone, and at no other; this
# build, or its target embla_headers, compiles every header alone.
# Usage: tests/house/headers.sh CMAKE BUILD_DIR
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake=$1
build=$(cd "$2" && pwd)
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

# The same in a header that only a test includes.
echo 'embla_library(room SRCS own.cc HDRS own.h)' >"$house/room/CMakeLists.txt"
echo 'embla_test_headers(SRCS alone.h DEPS embla::room)' >>"$house/room/CMakeLists.txt"
sed -i 's/^add_subdirectory/add_library(GTest::gmock INTERFACE IMPORTED GLOBAL)\n&/' \
  "$house/CMakeLists.txt"
if "$cmake" --build "$house/build" >"$house/out" || ! grep -q 'room/alone.h:2' "$house/out"; then
  cat "$house/out"
  exit 1
fi

# A header has a source of its name, which includes it first, or an object of its own. Parts of
# kernels (-inl.h and what only they include) and device code are no headers to be included alone;
# client/python is built with the package only.
left_out=0
while read -r header; do
  if [[ ! -e "${header%.h}.cc" && ! -e "$build/headers/$header.cc" ]]; then
    echo "$header is compiled alone nowhere: name it in HDRS of its library, or in SRCS of its test"
    left_out=1
  fi
done < <(git ls-files '*.h' | grep -Ev '^kernels/|^client/python/|/cuda/')
exit $left_out
