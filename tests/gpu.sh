#!/usr/bin/env bash
# Builds the tests with label `gpu` and all they need, and runs them: kernels, maps of ids,
# collectives; then the GPU benches, PyTorch on their ids where it is, and the tests once more under
# compute-sanitizer where that is. Needs nvcc, CMake and a C++ compiler, but neither gRPC nor the
# network; Abseil, Highway, GoogleTest and the JSON library may come from a folder of unpacked
# packages. Takes a few minutes without the sanitizer, and ends with the benches' figures and one
# table of all runs.
#
#   tests/gpu.sh --pack DIR      fills DIR with those packages, unpacked: where the network is
#   tests/gpu.sh --prefix DIR    uses them
#   tests/gpu.sh --compile-only  builds, and runs nothing
#   tests/gpu.sh --run-only      runs what --compile-only has built, here or elsewhere
#   tests/gpu.sh --no-sanitizer  leaves compute-sanitizer out, which takes most of the time
#   tests/gpu.sh --sanitizer     runs the tests under compute-sanitizer, and nothing else
#   tests/gpu.sh --build DIR     where to build (default: build/gpu)
#
# EMBLA_TORCH_PYTHON: the Python that has PyTorch (default: python3).
#
# Exit 0: every test passed on a GPU, or was compiled. 4: nothing failed, but compute-sanitizer did
# not come to its end. 77: no GPU here, so those were skipped.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Another folder of the same sources finds what this one compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

packages=(libabsl20220623 libabsl-dev libgmock-dev libgtest-dev libhwy1 libhwy-dev
  nlohmann-json3-dev)
prefix=""
build=build/gpu
compile_only=false
run_only=false
sanitizer=true
plain=true

usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
  exit 2
}

pack() {
  local folder="$1" debs
  mkdir -p "$folder"
  debs="$(mktemp -d)"
  (cd "$debs" && apt-get download --quiet "${packages[@]}")
  for deb in "$debs"/*.deb; do dpkg --extract "$deb" "$folder"; done
  rm -r "$debs"
  echo "packed ${#packages[@]} packages into $folder ($(du -sh "$folder" | cut -f1))"
}

while (($# > 0)); do
  case "$1" in
    --pack) pack "${2:?a folder}"; exit 0 ;;
    --prefix) prefix="$(cd "${2:?a folder}" && pwd)"; shift 2 ;;
    --build) build="${2:?a folder}"; shift 2 ;;
    --compile-only) compile_only=true; shift ;;
    --run-only) run_only=true; shift ;;
    --no-sanitizer) sanitizer=false; shift ;;
    --sanitizer) plain=false; shift ;;
    *) usage ;;
  esac
done

started=$SECONDS
step() { echo "== $* ($((SECONDS - started)) s)"; }

nvcc="${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}"
if ! "$run_only" && [[ ! -x "$nvcc" ]]; then
  echo "no nvcc: install the CUDA toolkit, or name it by CUDACXX" >&2
  exit 1
fi

if [[ -n "$prefix" ]]; then
  LD_LIBRARY_PATH="$prefix/usr/lib/$(uname -m)-linux-gnu:${LD_LIBRARY_PATH:-}"
  export LD_LIBRARY_PATH
fi

has_gpu=false
if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
  has_gpu=true
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
fi

# Tests on the emulator tell a wrong kernel from a wrong GPU build.
emulated_tests=(cuda_emulated_test zch_cuda_emulated_test emulated_id_map_test)

compile() {
  local options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DEMBLA_DEVICES_ONLY=ON
    -DEMBLA_UNITY=64 -DEMBLA_BENCHMARKS=OFF "-DCMAKE_CUDA_COMPILER=$nvcc")
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if [[ -n "$prefix" ]]; then options+=("-DCMAKE_PREFIX_PATH=$prefix/usr"); fi
  if "$has_gpu" && ! "$compile_only"; then
    # This machine's GPU alone: machine code for others takes minutes.
    local capability
    capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)"
    options+=("-DCMAKE_CUDA_ARCHITECTURES=${capability/./}")
  fi
  mkdir -p "$build"
  step "configure"
  cmake "${options[@]}" >"$build/build.log" 2>&1 || { tail -20 "$build/build.log"; exit 1; }
  step "build"
  nice cmake --build "$build" --target embla_gpu_tests "${emulated_tests[@]}" \
    gpu_lookup_bench gpu_update_bench \
    --parallel "${EMBLA_JOBS:-$(nproc)}" >>"$build/build.log" 2>&1 ||
    { grep -E -A5 'error|FAILED' "$build/build.log" | head -60; exit 1; }
  step "built"
}
if ! "$run_only"; then compile; fi
if "$compile_only"; then exit 0; fi

# name, result, seconds, one line per run; a run's output is shown when it failed. Exit 3 of a
# program says that it lacks a GPU, or PyTorch.
rows=()
failed=0
cut_off=0
limit_s=240
add_row() { rows+=("$(printf '%-42s %8s %6d s' "$@")"); }
finding='^========= +(Invalid|Misaligned|Race|Error:|Warning:|Uninitialized|Barrier|Program hit)'
run() {
  local name="$1" begun=$SECONDS code=0
  shift
  result=passed
  timeout "$limit_s" "$@" >"$build/$name.log" 2>&1 || code=$?
  if ((code == 3)); then
    result=skipped
    tail -1 "$build/$name.log"
  elif [[ "$code" == 124 && "$name" == *check-* ]] &&
    ! grep -qE "$finding" "$build/$name.log"; then
    result=cut-off  # With nothing found until then.
  elif ((code != 0)); then
    result=FAILED
    failed=1
    tail -40 "$build/$name.log"
  elif grep -q 'SKIPPED' "$build/$name.log"; then
    result=skipped
  fi
  add_row "$name" "$result" "$((SECONDS - begun))"
}

tests="$build/tests"
mapfile -t gpu_tests < <(ctest --test-dir "$build" --show-only --label-regex '^gpu$' |
  sed -n 's/^ *Test *#[0-9]*: //p')
benches=(gpu_lookup_bench gpu_update_bench)
run_tests() {
  local test
  for test in "${gpu_tests[@]}" "${emulated_tests[@]}"; do
    step "$test"
    run "$test" "$tests/$test"
  done
}

# Before the sanitizer: figures matter more than its word on what has passed. A GPU with less than
# 40 GB gets smaller tables.
run_benches() {
  local bench bench_options=() memory_mib
  if "$has_gpu"; then
    memory_mib="$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)"
    bench_options+=(--divide "$((40960 / memory_mib + 1))"
      --table-mib "$((memory_mib / 4 < 8192 ? memory_mib / 4 : 8192))")
  fi
  ids="$(mktemp -d)"
  trap 'rm -r "$ids"' EXIT
  limit_s=600
  for bench in "${benches[@]}"; do
    step "$bench"
    rm -f "$build/$bench.json"
    run "$bench" "$build/bench/$bench" "${bench_options[@]}" --write-ids "$ids" \
      --json "$build/$bench.json"
  done
  if [[ -s "$build/gpu_lookup_bench.json" && -s "$build/gpu_update_bench.json" ]]; then
    step "PyTorch on the same ids"
    run embedding_bag "${EMBLA_TORCH_PYTHON:-python3}" bench/gpu/embedding_bag.py "$ids" \
      "$build/gpu_lookup_bench.json" "$build/gpu_update_bench.json"
  fi
}
if "$plain"; then
  run_tests
  run_benches
fi

# memcheck: accesses outside allocations, or misaligned; calls that a test means to fail are no
# errors. racecheck: shared memory, which sorting uses. synccheck: shuffles and ballots whose lanes
# do not all come. initcheck: reads of what nobody has written, by kernels: copies to the host bring
# padding, too.
#
# A launch takes tens of times as long under them, so each test runs in shards, side by side, and
# those with random operations make fewer. A GPU gives its processes turns, so few run at once; the
# slowest tool comes last. What has not ended after `checks_s` is cut off, and says so.
tools=(memcheck synccheck initcheck racecheck)
shards_max=4
at_once=8
checks_s=400
check="$(command -v compute-sanitizer || echo "$(dirname "$nvcc")/compute-sanitizer")"

# check_shard TOOL TEST SHARD SHARDS DEADLINE: leaves a line "result seconds tests" in $checked.
check_shard() {
  local begun=$SECONDS log="$1-$2.$3" options=(--report-api-errors no)
  if [[ "$1" == initcheck ]]; then options+=(--check-api-memory-access no); fi
  limit_s=$(($5 > SECONDS ? $5 - SECONDS : 1))
  export GTEST_TOTAL_SHARDS="$4" GTEST_SHARD_INDEX="$3" EMBLA_ZCH_OPERATIONS=20000
  run "$log" "$check" --tool "$1" "${options[@]}" --error-exitcode 1 "$tests/$2"
  echo "$result $((SECONDS - begun)) $(grep -c '^\[ *OK' "$build/$log.log")" >"$checked/$log"
}

# One row for each test under each tool: its worst shard's result, its longest one's seconds.
add_check_rows() {
  local tool test row
  for tool in "${tools[@]}"; do
    for test in "${gpu_tests[@]}"; do
      read -ra row < <(cat "$checked/$tool-$test".* | awk '
        { rank = index("passed skipped cut-off FAILED", $1); tests += $3 }
        rank > worst { worst = rank; result = $1 }
        $2 > longest { longest = $2 }
        END { print result, longest + 0, tests }')
      add_row "$tool-$test: ${row[2]} tests" "${row[0]}" "${row[1]}"
    done
  done
}

run_checks() {
  local test tool shard count deadline=$((SECONDS + checks_s))
  step "compute-sanitizer"
  checked="$(mktemp -d)"
  for tool in "${tools[@]}"; do
    for test in "${gpu_tests[@]}"; do
      # Shards without a test would be errors: a program that calls nothing of CUDA's.
      count="$("$tests/$test" --gtest_list_tests | grep -c '^  ')"
      count=$((count < shards_max ? count : shards_max))
      for ((shard = 0; shard < count; ++shard)); do
        while (($(jobs -rp | wc -l) >= at_once)); do wait -n || true; done
        check_shard "$tool" "$test" "$shard" "$count" "$deadline" &
      done
    done
  done
  wait
  add_check_rows
  if grep -q FAILED "$checked"/*; then failed=1; fi
  cut_off="$(grep -l cut-off "$checked"/* | wc -l)"
  rm -r "$checked"
}
if "$has_gpu" && "$sanitizer" && [[ -x "$check" ]]; then run_checks; fi

for bench in "${benches[@]}" embedding_bag; do
  if "$has_gpu" && "$plain" && [[ -f "$build/$bench.log" ]]; then echo; cat "$build/$bench.log"; fi
done
echo
printf '%s\n' "${rows[@]}"
echo "$((SECONDS - started)) s in all"
if ((failed != 0)); then exit 1; fi
if ((cut_off != 0)); then
  echo "$cut_off runs under compute-sanitizer were cut off after $checks_s s, with nothing found"
  exit 4
fi
if ! "$has_gpu"; then
  echo "SKIPPED: no GPU here"
  exit 77
fi
