#!/usr/bin/env bash
# Two builds side by side: what is slower in the newer one, and whether its servers need more CPU.
# Usage: bench/compare.sh OLD NEW [FILTER]    build folders; FILTER: a part of a benchmark's name
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/compare.py" "$@"
