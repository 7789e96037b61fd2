#!/usr/bin/env bash
# Makes a release of the tree as it is: tests, packages, wheels, checksums, and a tag. Nothing is
# pushed or published.
#
#   deploy/release.sh VERSION         into dist/VERSION
#   deploy/release.sh --check VERSION    only says whether the tree states that version
#
# VERSION stands in CMakeLists.txt, in deploy/kubernetes/base/kustomization.yaml, twice in
# deploy/helm/embla/Chart.yaml, and at the top of CHANGELOG.md with the day of the release:
# "## 0.2.0 (2026-11-30)".
set -euo pipefail
export LC_ALL=C

check=false
if [[ "${1:-}" == --check ]]; then
  check=true
  shift
fi
version="${1:-}"
[[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || {
  echo "usage: $0 [--check] VERSION" >&2
  exit 2
}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() {
  echo "$0: $*" >&2
  exit 1
}

grep -q "^set(EMBLA_VERSION $version)\$" CMakeLists.txt ||
  fail "CMakeLists.txt has another version: $(grep '^set(EMBLA_VERSION [0-9]' CMakeLists.txt)"
grep -q "newTag: \"$version\"" deploy/kubernetes/base/kustomization.yaml ||
  fail "deploy/kubernetes/base/kustomization.yaml has another tag than $version"
chart=deploy/helm/embla/Chart.yaml
[[ "$(grep -cxE "version: $version|appVersion: \"$version\"" "$chart")" == 2 ]] ||
  fail "$chart has another version or appVersion than $version"
heading="$(grep --max-count=1 '^## ' CHANGELOG.md)"
[[ "$heading" =~ ^"## $version ("(20[0-9]{2}-[0-9]{2}-[0-9]{2}|unreleased)")"$ ]] ||
  fail "CHANGELOG.md begins with \"$heading\", not with \"## $version (DAY)\""
"$check" && exit 0

[[ "$heading" != *unreleased* ]] || fail "CHANGELOG.md has no day for $version: \"$heading\""
[[ -z "$(git status --porcelain)" ]] || fail "there are changes that are not committed"
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || fail "there is a tag v$version"

tests/run.sh
ctest --preset release --label-regex '^long$' --tests-regex '^house_'
out="$PWD/dist/$version"
rm -rf "$out"
mkdir -p "$out"
deploy/package.sh --build build/quickstart "$out"
deploy/build_wheels.sh "$out"
git archive --prefix="embla-$version/" --output="$out/embla-$version.tar.gz" HEAD
(cd "$out" && sha256sum -- * >SHA256SUMS)
git tag --annotate "v$version" --message "Embla $version"
echo "released: $out, tag v$version; push the tag when it is to be seen"
