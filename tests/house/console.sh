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
source tests/house/venv.sh
# The first has the script that is wanted; the browsers' driver that it asks for is not.
make_venv console --no-deps axe-playwright-python==0.1.8 websocket-client==1.9.2
exec "$venv/bin/python" tests/house/console_test.py "$1" "$chromium"
