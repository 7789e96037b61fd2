#!/usr/bin/env bash
# Makes a virtual environment with what builds and tests the Python package, unless it is there.
# Exit code 1 where the package registry cannot be reached: the tests of the package are skipped.
#
#   tests/python_environment.sh FOLDER
set -euo pipefail
export LC_ALL=C

(($# == 1)) || {
  echo "usage: $0 FOLDER" >&2
  exit 2
}
[[ -e "$1/ready" ]] && exit
python3 -m venv --clear "$1"
if ! "$1/bin/python" -m pip install --quiet --disable-pip-version-check \
  'mypy>=1.11' 'nanobind>=2.4' 'numpy>=1.26' 'pytest>=8'; then
  echo "SKIPPED: the tests of the Python package; pip cannot install what they need"
  exit 1
fi
touch "$1/ready"
