#!/usr/bin/env bash
# Builds the tests with label `gpu` and all they need, and runs them: kernels, stores, collectives.
# Needs nvcc, CMake and a C++ compiler, but neither gRPC nor the network; Abseil, Highway,
# GoogleTest and the JSON library may come from a folder of unpacked packages. Takes a few minutes,
# the tests' time included, and ends with one table.
#
#   tests/gpu.sh --pack DIR      fills DIR with those packages, unpacked: where the network is
#   tests/gpu.sh --prefix DIR    uses them
#   tests/gpu.sh --compile-only  builds, and runs nothing
#   tests/gpu.sh --build DIR     where to build (default: build/gpu)
#
# Exit 0: every test passed on a GPU, or was compiled. 77: no GPU here, so those were skipped.
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

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0"
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
    *) usage ;;
  esac
done

started=$SECONDS
step() { echo "== $* ($((SECONDS - started)) s)"; }

nvcc="${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}"
if [[ ! -x "$nvcc" ]]; then
  echo "no nvcc: install the CUDA toolkit, or name it by CUDACXX" >&2
  exit 1
fi

options=(-S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DEMBLA_DEVICES_ONLY=ON
  -DEMBLA_BENCHMARKS=OFF "-DCMAKE_CUDA_COMPILER=$nvcc")
if command -v ninja >/dev/null; then options+=(-G Ninja); fi
if [[ -n "$prefix" ]]; then
  options+=("-DCMAKE_PREFIX_PATH=$prefix/usr")
  LD_LIBRARY_PATH="$prefix/usr/lib/$(uname -m)-linux-gnu:${LD_LIBRARY_PATH:-}"
  export LD_LIBRARY_PATH
fi

has_gpu=false
if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
  has_gpu=true
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
fi
if "$has_gpu" && ! "$compile_only"; then
  # This machine's GPU alone: machine code for others takes minutes.
  capability="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)"
  options+=("-DCMAKE_CUDA_ARCHITECTURES=${capability/./}")
fi

mkdir -p "$build"
step "configure"
cmake "${options[@]}" >"$build/build.log" 2>&1 || { tail -20 "$build/build.log"; exit 1; }
step "build"
nice cmake --build "$build" --target embla_gpu_tests cuda_emulated_test \
  --parallel "${EMBLA_JOBS:-$(nproc)}" >>"$build/build.log" 2>&1 ||
  { grep -E -A5 'error|FAILED' "$build/build.log" | head -60; exit 1; }
step "built"
if "$compile_only"; then exit 0; fi

# name, seconds, result, one line per run; a run's output is shown when it failed.
rows=()
failed=0
run() {
  local name="$1" begun=$SECONDS result=passed
  shift
  if ! timeout 240 "$@" >"$build/$name.log" 2>&1; then
    result=FAILED
    failed=1
    tail -40 "$build/$name.log"
  elif grep -q 'SKIPPED' "$build/$name.log"; then
    result=skipped
  fi
  rows+=("$(printf '%-42s %8s %6d s' "$name" "$result" "$((SECONDS - begun))")")
}

tests="$build/tests"
mapfile -t gpu_tests < <(ctest --test-dir "$build" --show-only --label-regex '^gpu$' |
  sed -n 's/^ *Test *#[0-9]*: //p')
for test in "${gpu_tests[@]}"; do
  step "$test"
  run "$test" "$tests/$test"
done
# The emulated device's tests tell a wrong kernel from a wrong GPU build.
run cuda_emulated_test "$tests/cuda_emulated_test"
if "$has_gpu" && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step "$tool"
    run "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$tests/cuda_kernels_test"
  done
fi

echo
printf '%s\n' "${rows[@]}"
echo "$((SECONDS - started)) s in all"
if ((failed != 0)); then exit 1; fi
if ! "$has_gpu"; then
  echo "SKIPPED: no GPU here"
  exit 77
fi
