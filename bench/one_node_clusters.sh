# shellcheck shell=bash
# Clusters of one node, side by side, for benches that compare ways to run it. To be sourced after
# `bin` and `work` are set; whatever was started ends with the script, and $work with it.

declare -A node_pid
children=()
# shellcheck disable=SC2317,SC2329  # Called by the trap.
stop() {
  trap - EXIT
  for ((i = ${#children[@]} - 1; i >= 0; --i)); do kill "${children[i]}" 2>/dev/null || true; done
  wait || true
  rm -rf "$work"
}
trap stop EXIT

# wait_for FILE: until a program has written its port file.
wait_for() {
  for ((i = 0; i < 1200; ++i)); do
    [[ -s "$1" ]] && return
    sleep 0.1
  done
  echo "$1 never came" >&2
  tail -n 5 "$work"/*.log >&2
  exit 1
}
# address FILE KEY: what stands in a port file.
address() { sed -n "s/.*\"$2\"[[:space:]]*:[[:space:]]*\"\\([^\"]*\\)\".*/\\1/p" "$work/$1.json"; }

# bytes KIND: of its node's directory, where files come and go.
bytes() {
  { find "$work/$1" -type f -printf '%s\n' 2>/dev/null || true; } |
    awk '{ s += $1 } END { printf "%.0f\n", s }'
}
# start_coordinator KIND OPTION...
start_coordinator() {
  local kind="$1"
  shift
  "$bin/embla-coordinator" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
    --metrics-listen 127.0.0.1:0 --state-dir "$work/$kind-state" \
    --port-file "$work/$kind.json" "$@" 2>"$work/$kind-coordinator.log" &
  children+=($!)
  wait_for "$work/$kind.json"
  mkdir -p "$work/$kind"
}
# run_node KIND OPTION...
run_node() {
  local kind="$1"
  shift
  rm -f "$work/$kind-node.json"
  "$bin/embla-shard" --name "$kind" --coordinator "$(address "$kind" listen)" \
    --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --port-file "$work/$kind-node.json" "$@" \
    2>"$work/$kind.log" &
  node_pid["$kind"]=$!
  children+=($!)
  wait_for "$work/$kind-node.json"
}
