#!/usr/bin/env bash
# Every shell script passes shellcheck, is executable, and stops at the first error.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mapfile -t scripts < <(find deploy docker tests tools -name '*.sh' | sort)
scripts+=(.ci/run)

failed=0
for script in "${scripts[@]}"; do
  if [[ ! -x "$script" ]]; then
    echo "$script: not executable"
    failed=1
  fi
  if ! grep -q '^set -euo pipefail$' "$script"; then
    echo "$script: no 'set -euo pipefail'"
    failed=1
  fi
done
((failed == 0)) || exit 1

if ! command -v shellcheck >/dev/null; then
  echo "SKIPPED: no shellcheck here (${#scripts[@]} scripts have their modes and options right)"
  exit 77
fi
shellcheck --shell=bash "${scripts[@]}"
