#!/usr/bin/env bash
# Faults without end, and nothing lost. The last line says how it went; the exit code is 0 only if
# no update was lost or applied twice, no unit had two owners and every process recovered.
#
#   tests/fault/chaos.sh --faults 300 --seed 7        more options: --help
#
# Needs a build: cmake --build --preset release. EMBLA_BUILD: another build directory.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build="${EMBLA_BUILD:-build/release}"
if [[ ! -x "$build/tests/chaos" ]]; then
  echo "there is no $build/tests/chaos: cmake --build --preset release --target chaos" >&2
  exit 2
fi
EMBLA_BIN_DIR="$PWD/$build/bin" exec "$build/tests/chaos" "$@"
