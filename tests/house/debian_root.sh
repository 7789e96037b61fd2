#!/usr/bin/env bash
# The packages in an empty Debian: install, train, upgrade to the same tree as the next patch
# release, go back, remove (debian_root_test.py). Needs root, debootstrap, and Debian's mirror.
# Usage: debian_root.sh [PRESET]    packs build/PRESET (quickstart), also as the next version: that
#                                   links the programs anew, and once more as they were
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
preset="${1:-quickstart}"
mirror=http://deb.debian.org/debian
skip() {
  echo "SKIPPED: $*"
  exit 77
}
((EUID == 0)) || skip "debootstrap and chroot need root"
grep -q bookworm /etc/os-release || skip "packages of this machine are not for Debian 12"
command -v debootstrap >/dev/null || skip "no debootstrap here; deploy/install_packages.sh --tests"
unshare --mount true 2>/dev/null || skip "this machine lets nobody make namespaces"
curl --silent --fail --max-time 30 --output /dev/null "$mirror/dists/bookworm/Release" ||
  skip "$mirror cannot be reached"
[[ -x "build/$preset/bin/embla-train" ]] || skip "build/$preset is not built"

version="$(sed -n 's/^set(EMBLA_VERSION \([0-9.]*\))$/\1/p' CMakeLists.txt)"
next="${version%.*}.$((${version##*.} + 1))"
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
work="$(mktemp -d)"
# build_as VERSION: only the version is compiled. Empty: the tree's own.
build_as() {
  local programs=(embla embla-coordinator embla-shard embla-train)
  cmake "build/$preset" "-DEMBLA_VERSION_INSTEAD=$1" >"$work/log"
  nice cmake --build "build/$preset" --parallel "${EMBLA_JOBS:-$(nproc)}" \
    --target "${programs[@]}" >"$work/log" || { tail -n 40 "$work/log"; return 1; }
}
as_before() {
  [[ -d "$work/$version" ]] || build_as ""
  rm -rf "$work"
}
trap as_before EXIT
build_as "$next"
deploy/package.sh --build "build/$preset" "$work/$next"
build_as ""
deploy/package.sh --build "build/$preset" "$work/$version"
debootstrap --variant=minbase bookworm "$work/root" "$mirror" >"$work/log" ||
  { tail -n 20 "$work/log"; exit 1; }
cp -r "$work/$version" "$work/$next" "$work/root/"
# In namespaces, so that processes and /proc of the root go with the test, however it ends.
unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
  python3 tests/house/debian_root_test.py "$work/root" "$version" "$next"
