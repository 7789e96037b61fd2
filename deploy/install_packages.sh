#!/usr/bin/env bash
# Installs what Embla is built from on Debian 12 or Ubuntu 24.04, as root or with sudo. Only missing
# packages are installed: where all are there, it needs neither the network nor root.
#
#   deploy/install_packages.sh            to build and run
#   deploy/install_packages.sh --python   also what the Python package is built with
#   deploy/install_packages.sh --tests    that, and what tests ask: format, debootstrap, etcd
#   deploy/install_packages.sh --all      also Clang and clang-tidy, for the other presets
set -euo pipefail
export LC_ALL=C

packages=(
  ca-certificates curl dpkg-dev file git
  g++ cmake ninja-build ccache lld python3
  libabsl-dev libbenchmark-dev libcli11-dev libcpp-httplib-dev libgmock-dev libgrpc++-dev
  libgtest-dev libhwy-dev libprotobuf-dev libssl-dev libsystemd-dev libyaml-cpp-dev libzstd-dev
  nlohmann-json3-dev pkgconf prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
)
python_packages=(python3-dev python3-pip python3-venv)
test_packages=(
  clang-format debian-archive-keyring debootstrap etcd-server mandoc prometheus python3-yaml
  shellcheck systemd
)
# Ubuntu's package of that name is a snap, which needs a running snapd.
if grep --quiet '^ID=debian' /etc/os-release 2>/dev/null; then
  test_packages+=(chromium)
fi
all_packages=(clang clang-tidy)

case "${1:-}" in
  "") ;;
  --python) packages+=("${python_packages[@]}") ;;
  --tests) packages+=("${python_packages[@]}" "${test_packages[@]}") ;;
  --all) packages+=("${python_packages[@]}" "${test_packages[@]}" "${all_packages[@]}") ;;
  *)
    echo "usage: $0 [--python | --tests | --all]" >&2
    exit 2
    ;;
esac

installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

if ! command -v dpkg-query >/dev/null; then
  echo "this is neither Debian nor Ubuntu; install by hand: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "packages: all ${#packages[@]} installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "run this as root or install sudo; missing: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "packages: installing ${missing[*]}"
# Another apt may hold the lock for a while on a machine that has just started. RUNLEVEL=1: services
# of packages (prometheus, for promtool) are not started.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
  apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 --quiet)
"${apt[@]}" update
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
# Tests start members of etcd of their own: the package's service is not enabled either.
if [[ " ${missing[*]} " == *" etcd-server "* ]]; then
  "${as_root[@]}" deb-systemd-helper disable etcd.service >/dev/null 2>&1 || true
  "${as_root[@]}" update-rc.d etcd disable >/dev/null 2>&1 || true
fi
