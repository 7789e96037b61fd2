#!/usr/bin/env bash
# How large does a node's directory get, and how long does a start take, after updates worth many
# times the bytes of its table? A node with snapshots is trained by embla-bench, four updates of
# 16384 ids in flight, dim 64, fp32, and killed amid the training, when its journal has had
# so much; another one after a twelfth of it.
#
#   bench/growth_bench.sh [BIN_DIR] [DIRECTORY]
#
# BIN_DIR: default build/release/bin. DIRECTORY: default a temporary one; it must have room for
# four times the table.
#
# EMBLA_ROWS: of the table (4200000: 1.1 GB with its optimizer's state). EMBLA_TIMES: the bytes of
# all updates by those of the table (50). EMBLA_DISTRIBUTION: of ids (zipf:1.05).
# Aims: the directory at most 4 times the table at any moment, 2.5 times usually (the median of
# looks every 0.1 s), and starts that take as long after all updates as after a twelfth of them.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin="${1:-build/release/bin}"
parent="${2:-${TMPDIR:-/tmp}}"
rows="${EMBLA_ROWS:-4200000}"
times="${EMBLA_TIMES:-50}"
table=$((rows * 260))  # 64 columns and one accumulator.
work="$(mktemp -d -p "$parent")"
# shellcheck source=bench/one_node_clusters.sh
source bench/one_node_clusters.sh

# written KIND: bytes of its node's journal so far.
written() {
  exec 3<>"/dev/tcp/127.0.0.1/$(address "$1-node" metrics | sed 's/.*://')"
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  awk '/^embla_journal_bytes_total/ { s += $2 } END { printf "%.0f\n", s }' <&3
}
start_node() { run_node "$1" --devices cpu:2 --data-dir "$work/$1"; }

# train KIND TIMES: kills a new cluster's node, amid a training, when its journal has had so many
# times the table's bytes.
train() {
  local kind="$1" until=$(($2 * table))
  start_coordinator "$kind"
  start_node "$kind"
  "$bin/embla-bench" --coordinator "$(address "$kind" listen)" \
    --admin "$(address "$kind" admin)" --update-share 1 --in-flight 4 --ids 16384 \
    --rows "$rows" --rounds 1 --requests 1000000 \
    --distribution "${EMBLA_DISTRIBUTION:-zipf:1.05}" --no-ceilings >"$work/bench.log" 2>&1 &
  local training=$!
  while (($(written "$kind") < until)); do
    kill -0 "$training" || { cat "$work/bench.log" >&2 && exit 1; }
    bytes "$kind" >>"$work/looks"
    sleep 0.1
  done
  kill -KILL "${node_pid["$kind"]}"
  wait "${node_pid["$kind"]}" 2>/dev/null || true
  kill "$training" 2>/dev/null || true
  start_node "$kind"
  sed -n 's/.*shard recovered .*snapshot_bytes=\([0-9]*\).*seconds=\([0-9.]*\).*/\1 \2/p' \
    "$work/$kind.log" | tail -n 1 |
    awk -v w="$until" -v d="$(bytes "$kind")" -v t="$table" '{
      printf "after %.1f times the table: directory %.2f times, snapshots read %.2f times, ", w / t,
        d / t, $1 / t
      printf "start %.2f s\n", $2 }'
}
train short $((times / 12))
kill "${node_pid[short]}"
train long "$times"
sort -n "$work/looks" | awk -v t="$table" '{ v[NR] = $1 / t }
  END { printf "directory, in bytes of the table: median %.2f (aim 2.5), most %.2f (aim 4)\n",
    v[int((NR + 1) / 2)], v[NR] }'
