#!/usr/bin/env bash
# Installs what is missing, builds preset `release` and runs every test; the last lines are ctest's
# own summary, and which Python tests were skipped. Needs Debian 12 or Ubuntu 24.04, root or sudo
# for missing packages.
#
#   tests/run.sh           everything
#   tests/run.sh --quick   without the tests labelled `slow`
#   tests/run.sh --all     also the presets clang, asan and tsan
#
# EMBLA_JOBS: how many compilers and tests run at once (default: all cores).
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Another clone of the same sources finds what this one compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

packages=--tests
presets=(release)
ctest_options=()
for argument in "$@"; do
  case "$argument" in
    --quick) ctest_options+=(--label-exclude slow) ;;
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

step "packages"
deploy/install_packages.sh "$packages"

for preset in "${presets[@]}"; do
  step "configure $preset"
  cmake --preset "$preset"
  step "build $preset"
  nice cmake --build --preset "$preset" --parallel "$jobs"
  if [[ "$preset" == release ]]; then
    step "Python package"
    client/python/tests/run.sh prepare || (($? == 77))
  fi
  step "test $preset"
  passed=0
  rm -f build/python/skipped-*.txt
  nice ctest --preset "$preset" --parallel "$jobs" "${ctest_options[@]}" || passed=$?
  # ctest counts a level of Python tests as one test.
  if [[ "$preset" == release ]] && grep --quiet . build/python/skipped-*.txt 2>/dev/null; then
    step "skipped within the Python tests that passed"
    grep --no-filename . build/python/skipped-*.txt
  fi
  ((passed == 0)) || exit "$passed"
done
