#!/usr/bin/env bash
# C++ and protobuf files are formatted as .clang-format says. `--fix` formats them.
# Versions of clang-format disagree, so exactly one is asked: 14, as in Debian 12.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

formatter=""
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null && [[ "$("$candidate" --version)" == *" 14."* ]]; then
    formatter="$candidate"
    break
  fi
done
if [[ -z "$formatter" ]]; then
  echo "SKIPPED: no clang-format 14 here"
  exit 77
fi

mode=(--dry-run -Werror)
if [[ "${1:-}" == "--fix" ]]; then
  mode=(-i)
fi
find core kernels server client tools bench tests \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r -P 2 -n 32 "$formatter" "${mode[@]}"
