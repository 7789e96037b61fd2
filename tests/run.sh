#!/usr/bin/env bash
# Installs what is missing, builds presets `release` and `quickstart`, and runs the tests; the last
# lines are ctest's own summary, and which Python tests were skipped. Needs Debian 12 or Ubuntu
# 24.04, root or sudo for missing packages.
#
#   tests/run.sh           what decides whether a change may land: all tests but those labelled
#                          `long`, which tests/long.sh runs
#   tests/run.sh --quick   without the tests labelled `slow`, too
#   tests/run.sh --all     also the presets clang, asan and tsan
#
# EMBLA_JOBS: how many compilers and tests run at once (default: all cores).
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Another clone of the same sources finds what this one compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# Kernels are compiled for the oldest GPUs and for those whose machine code is looked at; the five
# that users get by default take minutes longer (cmake/cuda.cmake).
export CUDAARCHS="${CUDAARCHS:-80-real;90}"

packages=--tests
presets=(release)
quick=false
left_out='^long$'
for argument in "$@"; do
  case "$argument" in
    --quick)
      quick=true
      left_out='^(slow|long)$'
      ;;
    --all)
      packages=--all
      presets+=(clang asan tsan)
      ;;
    *)
      echo "usage: $0 [--quick] [--all]" >&2
      exit 2
      ;;
  esac
done

jobs="${EMBLA_JOBS:-$(nproc)}"
started=$SECONDS
step() { echo "== $* ($((SECONDS - started)) s)"; }

# build_beside: what tests of preset release use and its build does not have, so that no test
# compiles: the Python package, the programs as the quickstart builds them, the tests for GPUs.
build_beside() {
  step "build Python package"
  client/python/tests/run.sh prepare || (($? == 77))
  "$quick" || client/python/tests/run.sh build_wheels || (($? == 77))
  step "build quickstart"
  deploy/quickstart.sh --build
  if compgen -G 'build/release/CMakeFiles/*/CMakeCUDACompiler.cmake' >/dev/null; then
    # The same sources and architectures: the compiler's cache has them.
    step "build without gRPC, for GPUs"
    tests/gpu.sh --compile-only
  fi
}

step "packages"
deploy/install_packages.sh "$packages"

for preset in "${presets[@]}"; do
  step "configure $preset"
  cmake --preset "$preset"
  step "build $preset"
  nice cmake --build --preset "$preset" --parallel "$jobs"
  if [[ "$preset" == release ]]; then
    build_beside
  fi
  step "test $preset"
  passed=0
  rm -f build/python/skipped-*.txt
  # ctest leaves out only the tests that match both of two filters, so preset tsan, which has one,
  # gets no second.
  [[ "$preset" == tsan ]] && labels=() || labels=(--label-exclude "$left_out")
  nice ctest --preset "$preset" --parallel "$jobs" "${labels[@]}" || passed=$?
  # ctest counts a level of Python tests as one test.
  if [[ "$preset" == release ]] && grep --quiet . build/python/skipped-*.txt 2>/dev/null; then
    step "skipped within the Python tests that passed"
    grep --no-filename . build/python/skipped-*.txt
  fi
  ((passed == 0)) || exit "$passed"
done
