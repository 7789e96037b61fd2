#!/usr/bin/env bash
# How much of its host's processors does a node with a GPU need for updates? One cluster of one node
# for each way, asked in turns by embla-bench. The GPUs do nothing (embla-shard-idle-gpus), so what
# remains is the host's work: receiving, checks, slots of ids, memory that the link reads.
#
#   bench/gpu_host_bench.sh [BUILD]        default: build/release, with EMBLA_BENCHMARKS
#
#   straight   gradients go to the GPU from the memory of their request
#   lanes      the host copies them to the lanes first, as where no memory can be pinned
#   split      straight, by two GPUs that have half of the rows each
#   cpu        beside it: a node without GPUs, which sums and steps
#
# EMBLA_BEFORE: a bin directory of an older build whose embla-shard has such GPUs, too; one more
# kind. EMBLA_IDS: of an update (65536). EMBLA_REQUESTS: per turn (200). EMBLA_ROUNDS: turns (5).
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="${1:-build/release}"
ids="${EMBLA_IDS:-65536}"
requests="${EMBLA_REQUESTS:-200}"
work="$(mktemp -d)"
# shellcheck source=bench/one_node_clusters.sh
source bench/one_node_clusters.sh

mkdir "$work/bin"
for program in embla-coordinator embla-bench; do
  ln -s "$PWD/$build/bin/$program" "$work/bin/$program"
done
ln -s "$PWD/$build/bench/embla-shard-idle-gpus" "$work/bin/embla-shard"

declare -A bin_of=([straight]="$work/bin" [lanes]="$work/bin" [split]="$work/bin"
  [cpu]="$build/bin" [before]="${EMBLA_BEFORE:-}")
declare -A devices_of=([straight]=gpu:0 [lanes]=gpu:1 [split]=gpu:0,gpu:0 [cpu]=cpu:1
  [before]=gpu:0)
kinds=(straight lanes split cpu ${EMBLA_BEFORE:+before})
for kind in "${kinds[@]}"; do
  bin="${bin_of["$kind"]}"
  start_coordinator "$kind"
  run_node "$kind" --devices "${devices_of["$kind"]}" --memory-per-device 2GiB \
    --threads-per-device 2
done

cpu_ticks() { sed 's/.*) //' "/proc/${node_pid["$1"]}/stat" | awk '{ print $12 + $13 }'; }
# turn KIND: rows per second, and the node's seconds of processor per million rows (the first
# requests of a turn, which are not timed, count as well).
turn() {
  local before rows
  before="$(cpu_ticks "$1")"
  rows="$("${bin_of["$1"]}/embla-bench" --coordinator "$(address "$1" listen)" \
    --admin "$(address "$1" admin)" --update-share 1 --no-combine --ids "$ids" --in-flight 4 \
    --rounds 1 --requests "$requests" --no-ceilings -o json |
    sed -n 's/.*"rows_per_second": \([0-9.e+]*\).*/\1/p' | head -n 1)"
  awk -v r="$rows" -v t="$(($(cpu_ticks "$1") - before))" -v hz="$(getconf CLK_TCK)" \
    -v n="$requests" -v ids="$ids" 'BEGIN { print r, t / hz / (n * ids / 1e6) }'
}
for ((round = 0; round < ${EMBLA_ROUNDS:-5}; ++round)); do
  for kind in "${kinds[@]}"; do echo "$kind $(turn "$kind")"; done
done >"$work/rates"

# median KIND COLUMN
median() { awk -v kind="$1" -v column="$2" '$1 == kind { print $column }' "$work/rates" |
  sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
for kind in "${kinds[@]}"; do
  printf '%-9s %6.2f M rows/s, %.4f CPU s per M rows\n' "$kind" \
    "$(median "$kind" 2 | awk '{ print $1 / 1e6 }')" "$(median "$kind" 3)"
done
