#!/usr/bin/env bash
# Debian packages for the Debian or Ubuntu that this runs on: embla-server, embla-cli, libembla-dev.
#
#   deploy/package.sh [--cuda] [OUT]       builds what is missing, and packs it into OUT (dist)
#   deploy/package.sh --build DIR [OUT]    packs what is built in DIR
#
# --cuda: with the CUDA kernels; needs nvcc. EMBLA_JOBS: how many compilers run at a time.
# SOURCE_DATE_EPOCH: the time in the packages; by default that of the commit.
set -euo pipefail
export LC_ALL=C

usage() {
  echo "usage: $0 [--cuda | --build DIR] [OUT]" >&2
  exit 2
}

build="" out="" options=()
while (($# > 0)); do
  case "$1" in
    --cuda) options+=(--cuda) ;;
    --build)
      (($# >= 2)) || usage
      build="$(realpath "$2")"
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
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out="$(realpath --canonicalize-missing "${out:-dist}")"
if [[ -z "$build" ]]; then
  deploy/quickstart.sh --build "${options[@]}"
  build="$PWD/build/quickstart"
fi
for tool in cpack dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || {
    echo "$0: there is no $tool here; deploy/install_packages.sh installs it" >&2
    exit 1
  }
done

if [[ -z "${SOURCE_DATE_EPOCH:-}" ]]; then
  SOURCE_DATE_EPOCH="$(git log -1 --format=%ct 2>/dev/null || stat --format=%Y CHANGELOG.md)"
fi
export SOURCE_DATE_EPOCH
version="$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")$/\1/p' "$build/CPackConfig.cmake")"
documents="$build/packages/documents"
rm -rf "$documents"
mkdir -p "$documents" "$out"
printf '%s\n\n  * %s\n\n -- %s  %s\n' "embla ($version) unstable; urgency=medium" \
  "CHANGELOG.md of the sources has what changed." \
  "The Embla maintainers <maintainers@embla.invalid>" \
  "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")" |
  gzip -9 --no-name >"$documents/changelog.gz"
gzip -9 --no-name <CHANGELOG.md >"$documents/CHANGELOG.md.gz"
deploy/sbom.py "$version" "$build"/bin/embla{,-coordinator,-shard,-train} \
  >"$documents/sbom.spdx.json"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cpack --config "$build/CPackConfig.cmake" -B "$work" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }
for package in "$work"/*.deb; do
  cp "$package" "$out/"
  echo "$out/$(basename "$package"): $(($(stat --format=%s "$package") >> 10)) KiB"
done
