#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 to a trained model: installs packages, builds, starts one
# coordinator and two nodes of two CPU devices on loopback, trains, shows the plan and the metrics.
# Then it trains on raw ids twice, the second time on shards that become 4 and 3 meanwhile: the
# figures are the same. Everything it starts ends with it.
#
#   deploy/quickstart.sh                                    trains on generated examples
#   deploy/quickstart.sh --train FILE --test FILE [--report FILE]
#   deploy/quickstart.sh ... -- --epochs 3 --dim 16         the rest goes to embla-train
#   deploy/quickstart.sh --build                            builds, and runs nothing
#
# --cuda: compiles the CUDA kernels, too, which is done without asking where a GPU and nvcc are.
#
# EMBLA_BIN_DIR: use the programs there; nothing is installed or built. EMBLA_JOBS: how many
# compilers run at once (default: all cores, as far as memory goes).
set -euo pipefail
export LC_ALL=C

usage() {
  echo "usage: $0 [--build] [--cuda] [--train FILE --test FILE] [--report FILE]" \
    "[-- EMBLA-TRAIN-OPTIONS]" >&2
  exit 2
}

train_file="" test_file="" report_file=""
train_options=()
build_only=false
cuda=false
while (($# > 0)); do
  case "$1" in
    --train | --test | --report)
      (($# >= 2)) || usage
      declare "${1#--}_file=$(realpath --canonicalize-missing "$2")"
      shift 2
      ;;
    --build) build_only=true; shift ;;
    --cuda) cuda=true; shift ;;
    --)
      shift
      train_options=("$@")
      break
      ;;
    *) usage ;;
  esac
done
if [[ -n "$train_file" || -n "$test_file" ]]; then
  [[ -r "$train_file" && -r "$test_file" ]] || {
    echo "cannot read --train \"$train_file\" and --test \"$test_file\"; both are needed" >&2
    exit 2
  }
  input=(--train "$train_file" --test "$test_file")
else
  input=(--generate 200000)
fi
report=()
[[ -z "$report_file" ]] || report=(--report "$report_file")

cd "$(dirname "${BASH_SOURCE[0]}")/.."
title() { printf '\n== %s\n' "$*"; }

# compilers: how many at once: cores, and no more than memory lets, as each may take a GiB.
compilers() {
  local cores by_memory
  cores="$(nproc)"
  by_memory="$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)"
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

build() {
  local jobs="${EMBLA_JOBS:-$(compilers)}" cpu_minutes=8 options=() nvcc
  nvcc="${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}"
  if "$cuda" && [[ ! -x "$nvcc" ]]; then
    echo "--cuda: no nvcc here; install the CUDA toolkit, or name it by CUDACXX" >&2
    return 1
  fi
  if [[ -x "$nvcc" ]] && nvidia-smi --list-gpus >/dev/null 2>&1; then
    # This machine's GPU alone: machine code for others takes minutes.
    local capability
    capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)"
    options=(-DEMBLA_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=${capability/./}")
    cpu_minutes=$((cpu_minutes + 1))
  elif "$cuda"; then
    options=(-DEMBLA_CUDA=ON)
    cpu_minutes=$((cpu_minutes + 4))
  fi
  title "build: about $(((cpu_minutes + jobs - 1) / jobs)) minutes for $jobs cores the first time"
  mkdir -p build
  cmake --preset quickstart "${options[@]}" >build/quickstart.log ||
    { cat build/quickstart.log; return 1; }
  NINJA_STATUS="[%f/%t, %e s] " nice cmake --build --preset quickstart --parallel "$jobs"
}

bin="${EMBLA_BIN_DIR:-}"
if [[ -z "$bin" ]]; then
  title "packages"
  deploy/install_packages.sh
  build
  bin="$PWD/build/quickstart/bin"
fi
if "$build_only"; then exit 0; fi

# ------------------------------------------------------------------ the cluster, and its end

work="$(mktemp -d)"
children=()
# shellcheck disable=SC2317,SC2329  # Called by the trap.
stop() {
  local status=$?
  trap - EXIT
  if ((status != 0)); then
    tail -n 20 "$work"/*.log >&2 || true
  fi
  # Nodes before the coordinator: they would only complain that it is gone.
  for ((i = ${#children[@]} - 1; i >= 0; --i)); do
    kill -TERM "${children[i]}" 2>/dev/null || true
    if ! timeout 20 tail --pid="${children[i]}" -f /dev/null; then
      kill -KILL "${children[i]}" 2>/dev/null || true
    fi
    wait "${children[i]}" 2>/dev/null || status=$((status == 0 ? 1 : status))
  done
  rm -rf "$work"
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME PROGRAM OPTIONS...: returns when the program has written its port file.
start() {
  local name="$1"
  shift
  "$bin/$1" "${@:2}" --port-file "$work/$name.json" >"$work/$name.log" 2>&1 &
  children+=($!)
  for ((i = 0; i < 600; ++i)); do
    [[ -s "$work/$name.json" ]] && return
    kill -0 "${children[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "$name did not start" >&2
  return 1
}

# address NAME KEY: what stands in the port file, for instance "address node1 metrics".
address() { sed -n "s/.*\"$2\"[[:space:]]*:[[:space:]]*\"\\([^\"]*\\)\".*/\\1/p" "$work/$1.json"; }

title "start"
loopback=127.0.0.1:0
start coordinator embla-coordinator --listen "$loopback" --admin-listen "$loopback" \
  --metrics-listen "$loopback" --state-dir "$work/state"
EMBLA_COORDINATOR="$(address coordinator listen)"
EMBLA_ADMIN="$(address coordinator admin)"
export EMBLA_COORDINATOR EMBLA_ADMIN
# start_node NAME DEVICES
start_node() {
  start "$1" embla-shard --name "$1" --coordinator "$EMBLA_COORDINATOR" \
    --listen "$loopback" --metrics-listen "$loopback" --devices "$2"
}
for node in node1 node2; do start_node "$node" cpu:2; done
for ((i = 0; i < 300; ++i)); do
  "$bin/embla" cluster status -o json | grep -q '"nodes_live": 2' && break
  sleep 0.1
done
"$bin/embla" cluster status
"$bin/embla" node ls

# ------------------------------------------------------------------ the work

title "train"
"$bin/embla-train" --coordinator "$EMBLA_COORDINATOR" --admin "$EMBLA_ADMIN" --trainers 2 \
  "${input[@]}" "${report[@]}" "${train_options[@]}"

title "plan"
"$bin/embla" plan show

title "metrics"
for process in coordinator node1 node2; do
  echo "$process: http://$(address "$process" metrics)/metrics"
done
curl --silent --show-error --fail "http://$(address node1 metrics)/metrics" |
  grep -E '^embla_(plan_version|rows_(looked_up|updated)_total|requests_total)'

# ------------------------------------------------------------------ the same figures, on the move

# train_raw NAME: one trainer, ids as they are, tables of two shards; figures in $work/NAME.json.
# Six epochs, whatever the caller said: the moves need the time.
raw_options=()
for ((i = 0; i < ${#train_options[@]}; ++i)); do
  case "${train_options[i]}" in
    --epochs) ((++i)) ;;
    --epochs=*) ;;
    *) raw_options+=("${train_options[i]}") ;;
  esac
done
train_raw() {
  "$bin/embla-train" --coordinator "$EMBLA_COORDINATOR" --admin "$EMBLA_ADMIN" --zch \
    --zch-capacity 40000 --trainers 1 --synchronous --epochs 6 --stop-after 0 \
    --nodes node3,node4 --prefix "$1" --quiet \
    --report "$work/$1.json" "${raw_input[@]}" "${raw_options[@]}" >"$work/$1.log" 2>&1
}

# figures NAME: the quality that the run reported.
figures() { grep -E '"(auc|logloss|rmse)"' "$work/$1.json"; }

# rescale SHARDS: all tables of the run that is going on.
rescale() {
  for table in $("$bin/embla" table ls | grep -oE 'moving_[a-z_]+'); do
    "$bin/embla" reshard --table "$table" --shards "$1" --wait
  done
}

title "train on raw ids, shards where they are"
raw_input=("${input[@]}")
[[ -n "$train_file" ]] || raw_input=(--generate 1600000)
for node in node3 node4; do start_node "$node" cpu:1; done
train_raw resting
figures resting

title "train on raw ids, 2 -> 4 -> 3 shards meanwhile"
for node in node5 node6; do start_node "$node" cpu:1; done
train_raw moving &
training=$!
# tables NAME: how many the run has. What it prints comes when its buffer is full.
tables() { "$bin/embla" table ls | grep -cE "\\b$1_[a-z_]+" || true; }
until (($(tables moving) == $(tables resting))) || ! kill -0 "$training"; do
  sleep 0.1
done
rescale 4
rescale 3
kill -0 "$training" 2>/dev/null && echo "the training is still going on"
wait "$training" || { cat "$work/moving.log" >&2; exit 1; }
figures moving
"$bin/embla" job ls
if [[ "$(figures resting)" != "$(figures moving)" ]]; then
  echo "the figures differ" >&2
  exit 1
fi
echo "the same figures as without a move"

title "stop"
