#!/usr/bin/env bash
# `cmake --install` of the quickstart's build gives its programs and the C++ client, which another
# project then finds, compiles against and runs, as README.md says.
# Usage: tests/house/install.sh CMAKE
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake=$1
if [[ ! -x build/quickstart/bin/embla-train ]]; then
  echo "SKIPPED: build/quickstart is not built; deploy/quickstart.sh --build does it"
  exit 77
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$cmake" --install build/quickstart --prefix "$work/prefix" >"$work/out" ||
  { cat "$work/out"; exit 1; }
for program in embla embla-coordinator embla-shard embla-train; do
  "$work/prefix/bin/$program" --version
done

"$cmake" -S tests/find_package -B "$work/outside" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  >"$work/out" || { cat "$work/out"; exit 1; }
"$cmake" --build "$work/outside"
"$work/outside/outside"
