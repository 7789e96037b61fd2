#!/usr/bin/env bash
# Measures the cost of a data directory for updates, and the time until a node is back: one cluster
# of one node for each level of durability, asked in turns by embla-bench; then every node with a
# journal is killed and started again.
#
#   bench/journal_bench.sh [BIN_DIR] [DIRECTORY]   default: build/release/bin, a temporary directory
#
# EMBLA_ROUNDS: turns (default 5). EMBLA_REQUESTS: updates of 4096 ids, dim 64, per turn (200).
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin="${1:-build/release/bin}"
parent="${2:-${TMPDIR:-/tmp}}"
work="$(mktemp -d -p "$parent")"
levels=(no-journal none queued written synced)
# shellcheck source=bench/one_node_clusters.sh
source bench/one_node_clusters.sh

# start_node LEVEL
start_node() {
  local options=()
  [[ "$1" == no-journal ]] || options=(--data-dir "$work/$1" --durability "$1")
  run_node "$1" --devices cpu:1 "${options[@]}"
}

for level in "${levels[@]}"; do
  start_coordinator "$level"
  start_node "$level"
done

# updates LEVEL: rows per second of one turn.
updates() {
  "$bin/embla-bench" --coordinator "$(address "$1" listen)" --admin "$(address "$1" admin)" \
    --update-share 1 --in-flight 4 --rounds 1 --requests "${EMBLA_REQUESTS:-200}" --no-ceilings \
    -o json | sed -n 's/.*"rows_per_second": \([0-9.e+]*\).*/\1/p' | head -n 1
}
for ((round = 0; round < ${EMBLA_ROUNDS:-5}; ++round)); do
  for level in "${levels[@]}"; do echo "$level $(updates "$level")"; done
done >"$work/rates"
median() { awk -v level="$1" '$1 == level { print $2 }' "$work/rates" | sort -g |
  awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

base="$(median no-journal)"
printf '%-12s %12s %8s\n' durability 'rows/s' ratio
for level in "${levels[@]}"; do
  awk -v l="$level" -v r="$(median "$level")" -v b="$base" \
    'BEGIN { printf "%-12s %12.0f %8.2f\n", l, r, r / b }'
done

echo
for level in written synced; do
  kill -KILL "${node_pid["$level"]}"
  wait "${node_pid["$level"]}" 2>/dev/null || true
  start_node "$level"
  sed -n "s/.*shard recovered directory=[^ ]* process=[0-9]* /$level: recovered /p" \
    "$work/$level.log"
done
