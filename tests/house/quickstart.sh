#!/usr/bin/env bash
# deploy/quickstart.sh with programs that are built already: it trains, shows, stops and cleans up.
# Usage: quickstart.sh BIN_DIR
set -euo pipefail
export LC_ALL=C

EMBLA_BIN_DIR="$(realpath "$1")"
export EMBLA_BIN_DIR
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp"
mkdir "$TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# has PATTERN: the last run printed it.
has() { grep -q -e "$1" "$work/printed" || fail "no \"$1\" in what was printed"; }

deploy/quickstart.sh --report "$work/report.json" -- --epochs 1 2>&1 | tee "$work/printed"
has "nodes         2 live of 2"
has "row_wise: 4 slices on 4 devices of 2 nodes"
has "test AUC .*planted truth"
has '^embla_rows_looked_up_total{table="'
has "2 -> 4 -> 3 shards meanwhile"
has "reshard table moving_factors to 3 shards .*done"
has "the same figures as without a move"
has "^== stop"
grep -q '"auc"' "$work/report.json" || fail "no auc in the report"
[[ -z "$(ls -A "$TMPDIR")" ]] || fail "left behind: $(ls "$TMPDIR")"

# A training that fails is a quickstart that fails, and it still stops what it started.
status=0
deploy/quickstart.sh -- --model nonsense >"$work/printed" 2>&1 || status=$?
((status != 0)) || fail "a failed training ended with 0"
[[ -z "$(ls -A "$TMPDIR")" ]] || fail "left behind: $(ls "$TMPDIR")"

status=0
deploy/quickstart.sh --train /nonexistent --test /nonexistent >"$work/printed" 2>&1 || status=$?
((status == 2)) || fail "unreadable input ended with $status, not 2"
has "cannot read"
