#!/usr/bin/env bash
# Measures the cost of a data directory for updates, and the time until a node is back: one cluster
# of one node for each level of durability, asked in turns by embla-bench; then every node with a
# journal is killed and started again. In each turn a bare writer writes the same records with the
# same syncs (journal_writer_bench, from a build with EMBLA_BENCHMARKS).
#
#   bench/journal_bench.sh [BIN_DIR] [DIRECTORY]   default: build/release/bin, a temporary directory
#
# `of both`: the time that the updates take without a journal and the bare writer takes for their
# records, one after the other, as a part of the time that they take with the journal. Where node,
# client and the page cache share all cores it cannot be much over 1.
#
# EMBLA_ROUNDS: turns (default 5). EMBLA_REQUESTS: updates of 4096 ids, dim 64, per turn (600: a
# few tenths of a second). DIRECTORY must have room for 1.1 MB for each of them and each level.
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
  # Without snapshots, which have a bench of their own (snapshot_bench.sh).
  [[ "$1" == no-journal ]] ||
    options=(--data-dir "$work/$1" --durability "$1" --snapshot-after 1TiB)
  run_node "$1" --devices cpu:1 "${options[@]}"
}

for level in "${levels[@]}"; do
  start_coordinator "$level"
  start_node "$level"
done

requests="${EMBLA_REQUESTS:-600}"
# cpu_ticks LEVEL: processor time of a node so far.
cpu_ticks() { sed 's/.*) //' "/proc/${node_pid["$1"]}/stat" | awk '{ print $12 + $13 }'; }
# updates LEVEL: rows per second of one turn, and the node's seconds of processor per million rows
# (the first requests of a turn, which are not timed, count as well).
updates() {
  local before rows
  before="$(cpu_ticks "$1")"
  rows="$("$bin/embla-bench" --coordinator "$(address "$1" listen)" \
    --admin "$(address "$1" admin)" --update-share 1 --in-flight 4 --rounds 1 \
    --requests "$requests" --no-ceilings -o json |
    sed -n 's/.*"rows_per_second": \([0-9.e+]*\).*/\1/p' | head -n 1)"
  awk -v r="$rows" -v t="$(($(cpu_ticks "$1") - before))" -v hz="$(getconf CLK_TCK)" \
    -v n="$requests" 'BEGIN { print r, t / hz / (n * 4096 / 1e6) }'
}
# The same records by a bare writer, without a node, where the bench of the log is built.
writer="$bin/../bench/journal_writer_bench"
bare() {
  [[ -x "$writer" ]] || return 0
  "$writer" "$work" 1 "$requests" | awk '$2 == "bare" { sub(",", "", $1)
    print "bare-" $1, $3 * 1e6, $4 }'
}
for ((round = 0; round < ${EMBLA_ROUNDS:-5}; ++round)); do
  for level in "${levels[@]}"; do echo "$level $(updates "$level")"; done
  bare
done >"$work/rates"
[[ ! -x "$writer" ]] || levels+=(bare-written bare-synced)
# median LEVEL COLUMN
median() { awk -v level="$1" -v column="$2" '$1 == level { print $column }' "$work/rates" |
  sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

base="$(median no-journal 2)"
printf '%-12s %12s %8s %14s %8s\n' durability 'rows/s' ratio 'cpu s/M rows' 'of both'
for level in "${levels[@]}"; do
  case "$level" in
    queued | written) bare="$(median bare-written 2)" ;;
    synced) bare="$(median bare-synced 2)" ;;
    *) bare="" ;;
  esac
  awk -v l="$level" -v r="$(median "$level" 2)" -v c="$(median "$level" 3)" -v b="$base" \
    -v w="$bare" 'BEGIN { printf "%-12s %12.0f %8.2f %14.3f", l, r, r / b, c
      if (w) printf " %8.2f", r * (1 / b + 1 / w); print "" }'
done

echo
for level in written synced; do
  kill -KILL "${node_pid["$level"]}"
  wait "${node_pid["$level"]}" 2>/dev/null || true
  start_node "$level"
  sed -n "s/.*shard recovered directory=[^ ]* process=[0-9]* /$level: recovered /p" \
    "$work/$level.log"
done
