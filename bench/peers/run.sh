#!/usr/bin/env bash
# Measures ps-lite, PyTorch's RPC, Redis and TorchRec beside Embla, in interleaved rounds on this
# machine, and prints how many times faster or slower Embla is.
#
#   bench/peers/run.sh [--bin DIR] [--ps-lite DIR] [--python PYTHON] [--rounds N]
#                      [--workloads w1,w3] [--transport NAME] [--quick]
#
# Paths are from the root of the repository. --bin: Embla's programs (default build/release/bin).
# --ps-lite: a checkout of github.com/dmlc/ps-lite. --python: an interpreter that has torch,
# torchrec and fbgemm-gpu-cpu from PyPI (default python3). --rounds: default 5. --workloads: some
# of w1 to w5 (default all), which bench/peers/peers.py describes. --transport: of Embla's clients,
# as embla-bench names them (default auto, a unix socket between processes of one host; tcp, as
# ps-lite has it). --quick: smaller tables, shorter measurements.
#
# From Debian: g++, and for ps-lite libzmq3-dev, libprotobuf-dev and protobuf-compiler; for Redis
# redis-server and libhiredis-dev. A peer that is not here is named in a line that begins with
# SKIPPED, and has "-" in its column. Embla is one node of one CPU device. A peer is one server and
# one client: ps-lite by TCP on loopback, Redis by a unix socket, PyTorch by what its RPC chooses on
# one host; TorchRec is two processes that are both. The peers' handlers are in this folder: they
# check no numbers, and know neither sharding nor repeated requests.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=build/release/bin
ps_lite=
python=python3
transport=auto
options=()
while (($# > 0)); do
  case "$1" in
    --bin) bin="$2" ;;
    --ps-lite) ps_lite="$2" ;;
    --python) python="$2" ;;
    --transport) transport="$2" ;;
    --rounds | --workloads) options+=("$1" "$2") ;;
    --quick)
      options+=("$1")
      shift
      continue
      ;;
    *)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
  shift 2
done

work="$(mktemp -d)"
# shellcheck source=bench/one_node_clusters.sh
source bench/one_node_clusters.sh
here=bench/peers
flags=(-std=c++20 -O3 -march=native -I.)
# skip PEER REASON: says it visibly.
skip() { echo "SKIPPED $1: $2"; }
add() { options+=(--system "$1=${*:2}"); }
# compiles NAME COMMAND...: false, with the compiler's words, where it does not.
compiles() {
  local log="$work/$1-build.log"
  "${@:2}" >"$log" 2>&1 && return
  grep -m 3 -E 'error|No such file' "$log" >&2 || tail -n 3 "$log" >&2
  return 1
}
has_package() { "$python" -c "import $1" 2>"$work/$1-import.log"; }
version() { "$python" -c "from importlib.metadata import version; print(version('$1'))"; }

start_coordinator embla
run_node embla --devices cpu:1
echo "embla: $("$bin/embla-bench" --version | head -n 1), transport $transport"
add embla python3 "$here/embla_driver.py" "$bin" "$(address embla listen)" \
  "$(address embla admin)" "$transport"

# Only the handler may reorder sums: the checks of results have to see a NaN.
build_ps_lite() {
  local out="$work/ps-lite" source
  mkdir "$out" && protoc --cpp_out="$out" --proto_path="$ps_lite/src" "$ps_lite/src/meta.proto" &&
    for source in "$ps_lite"/src/{customer,postoffice,van}.cc "$out/meta.pb.cc"; do
      g++ -std=c++17 -O3 -march=native -w -I"$out" -I"$ps_lite/include" -I"$ps_lite/src" \
        -c "$source" -o "$out/$(basename "$source").o" || return 1
    done &&
    g++ "${flags[@]}" -ffast-math -w -I"$out" -I"$ps_lite/include" -I"$ps_lite/src" \
      -c "$here/ps_lite_driver.cc" -o "$out/driver.o" &&
    g++ "${flags[@]}" "$here"/{requests,driver_loop}.cc "$out"/*.o -lprotobuf -lzmq -lpthread \
      -o "$work/ps_lite_driver"
}
if [[ ! -f "$ps_lite/src/van.cc" ]]; then
  skip ps-lite "no checkout; git clone https://github.com/dmlc/ps-lite and name it by --ps-lite"
elif ! compiles ps-lite build_ps_lite; then
  skip ps-lite "does not compile; apt install g++ libzmq3-dev libprotobuf-dev protobuf-compiler"
else
  commit="$(git -C "$ps_lite" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "ps-lite: commit $commit, ZeroMQ $(dpkg-query -Wf '${Version}' libzmq3-dev || true)"
  add ps-lite "$work/ps_lite_driver"
fi

if ! has_package torch; then
  skip torch-rpc "$python cannot import torch; name one by --python: pip install torch"
else
  echo "torch-rpc: torch $(version torch)"
  add torch-rpc "$python" "$here/torch_rpc_driver.py"
fi

if ! command -v redis-server >/dev/null; then
  skip redis "no redis-server here; apt install redis-server"
elif ! compiles redis g++ "${flags[@]}" "$here"/{requests,driver_loop,redis_driver}.cc -lhiredis \
  -o "$work/redis_driver"; then
  skip redis "its driver does not compile; apt install g++ libhiredis-dev"
else
  redis-server --port 0 --unixsocket "$work/redis.sock" --save "" --appendonly no \
    --dir "$work" >"$work/redis-server.log" 2>&1 &
  children+=($!)
  for ((i = 0; i < 100; ++i)); do
    [[ -S "$work/redis.sock" ]] && break
    sleep 0.1
  done
  echo "redis: $(redis-server --version | sed 's/.*v=\([^ ]*\).*/\1/')"
  add redis "$work/redis_driver" "$work/redis.sock"
fi

if ! has_package torchrec || ! has_package fbgemm_gpu; then
  skip torchrec "$python cannot import torchrec; pip install torchrec fbgemm-gpu-cpu"
else
  echo "torchrec: $(version torchrec), torch $(version torch)"
  add torchrec "$python" "$here/torchrec_driver.py"
fi

python3 "$here/peers.py" --logs "$work" "${options[@]}"
