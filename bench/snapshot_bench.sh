#!/usr/bin/env bash
# Measures what snapshots cost while a node is trained, and how long a start takes: a node with
# snapshots and one without, asked in turns by embla-bench, then killed amid a training and started
# again.
#
#   bench/snapshot_bench.sh [BIN_DIR] [DIRECTORY]
#
# BIN_DIR: default build/release/bin. DIRECTORY: default a temporary one.
#
# EMBLA_ROUNDS: turns, with a table each (default 3). EMBLA_REQUESTS: updates of 16384 ids, dim 64,
# per turn (1200: five times the table). EMBLA_IN_FLIGHT: of them (4: as many as the node takes).
# EMBLA_ROWS: of the table (4200000: 1.1 GB). EMBLA_DISTRIBUTION: of ids (zipf:1.05). EMBLA_WIRE: of
# gradients (fp32). EMBLA_NODE_OPTIONS: of the nodes (--devices cpu:2).
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin="${1:-build/release/bin}"
parent="${2:-${TMPDIR:-/tmp}}"
rows="${EMBLA_ROWS:-4200000}"
requests="${EMBLA_REQUESTS:-1200}"
distribution="${EMBLA_DISTRIBUTION:-zipf:1.05}"
read -ra node_options <<<"${EMBLA_NODE_OPTIONS:---devices cpu:2}"
work="$(mktemp -d -p "$parent")"
kinds=(without with)
# shellcheck source=bench/one_node_clusters.sh
source bench/one_node_clusters.sh

# start_node KIND
start_node() {
  local after=128MiB
  [[ "$1" == with ]] || after=1TiB
  run_node "$1" "${node_options[@]}" --data-dir "$work/$1" --snapshot-after "$after"
}

for kind in "${kinds[@]}"; do
  start_coordinator "$kind"
  start_node "$kind"
done

# updates KIND SEED: rows per second of one turn, its p99 in microseconds.
updates() {
  "$bin/embla-bench" --coordinator "$(address "$1" listen)" --admin "$(address "$1" admin)" \
    --update-share 1 --in-flight "${EMBLA_IN_FLIGHT:-4}" --ids 16384 --rows "$rows" \
    --distribution "$distribution" --rounds 1 --requests "$requests" --seed "$2" \
    --wire "${EMBLA_WIRE:-fp32}" --no-ceilings -o json 2>/dev/null | tr -d '\n' |
    sed -n 's/.*"rows_per_second": *\([0-9.e+]*\).*"p99_us": *\([0-9.e+]*\).*/\1 \2/p'
}
for ((round = 0; round < ${EMBLA_ROUNDS:-3}; ++round)); do
  echo "without $(updates without "$round")"
  echo "with $(updates with "$round")"
done >"$work/rates"

# median KIND COLUMN
median() { awk -v k="$1" -v c="$2" '$1 == k { print $c }' "$work/rates" | sort -g |
  awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
printf '%-10s %12s %8s %12s\n' snapshots 'rows/s' ratio 'p99 ms'
for kind in "${kinds[@]}"; do
  awk -v k="$kind" -v r="$(median "$kind" 2)" -v b="$(median without 2)" \
    -v p="$(median "$kind" 3)" \
    'BEGIN { printf "%-10s %12.0f %8.2f %12.1f\n", k, r, r / b, p / 1000 }'
done
echo
exec 3<>"/dev/tcp/127.0.0.1/$(address with-node metrics | sed 's/.*://')"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
awk '/^embla_snapshot_hold_seconds_bucket.le="0.0008"/ { short = $2 }
  /^embla_snapshot_hold_seconds_count/ { all = $2 } /^embla_snapshots_total.*taken/ { taken = $2 }
  /^embla_snapshot_bytes_total/ { s = $2 } /^embla_journal_bytes_total/ { j = $2 }
  END {
    printf "snapshots %d; their bytes / those of the journal %.2f\n", taken, (j > 0 ? s / j : 0)
    printf "windows that held a device at most 0.8 ms: %.4f of %d\n",
      (all > 0 ? short / all : 0), all
  }' <&3

# A start amid a training: embla-bench drops its table when it is through.
echo
for kind in "${kinds[@]}"; do
  updates "$kind" 99 >/dev/null &
  training=$!
  before="$(bytes "$kind")"
  while kill -0 "$training" 2>/dev/null && (($(bytes "$kind") < before + rows * 130)); do
    sleep 0.1
  done
  kill -KILL "${node_pid["$kind"]}"
  wait "${node_pid["$kind"]}" 2>/dev/null || true
  kill "$training" 2>/dev/null || true
  start_node "$kind"
  sed -n "s/.*shard recovered directory=[^ ]* process=[0-9]* /$kind: recovered /p" "$work/$kind.log"
done
