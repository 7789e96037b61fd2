#!/usr/bin/env bash
# The console in a browser: Debian's Chromium, and axe, which looks for what keeps people out. axe
# and a WebSocket client come from the package index, into a virtual environment.
# Usage: console.sh BIN_DIR. EMBLA_CONSOLE_SHOTS: a folder for pictures of all views.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
chromium="$(command -v chromium || true)"
if [[ -z "$chromium" || "$(readlink -f "$chromium")" == *snap* ]]; then
  echo "SKIPPED: no chromium package here; on Debian deploy/install_packages.sh --tests installs it"
  exit 77
fi
packages=(axe-playwright-python==0.1.8 websocket-client==1.9.2)
venv="$PWD/build/python/console"
mkdir -p build/python
exec 9>"$venv.lock"
flock 9
if [[ ! -f "$venv/made-of" || "$(cat "$venv/made-of")" != "${packages[*]}" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  # The first has the script that is wanted; the browsers' driver that it asks for is not.
  if ! "$venv/bin/pip" --disable-pip-version-check install --quiet --no-deps "${packages[@]}"; then
    echo "SKIPPED: the package index cannot be reached, so there is nothing to test with"
    exit 77
  fi
  echo "${packages[*]}" >"$venv/made-of"
fi
exec "$venv/bin/python" tests/house/console_test.py "$1" "$chromium"
