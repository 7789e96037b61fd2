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
# The moves met a training: at rest they are over before anything is shown of them.
has '^\[#.*running'
has "done .*reshard table moving_factors to 3 shards"
has "the same figures as without a move"
has "^== stop"
grep -q '"auc"' "$work/report.json" || fail "no auc in the report"
[[ -z "$(ls -A "$TMPDIR")" ]] || fail "left behind: $(ls "$TMPDIR")"

# On files of one's own: ratings, whose users and items are numbers of any size.
ratings() {
  awk -v seed="$1" -v count="$2" 'BEGIN {
    srand(seed)
    for (i = 0; i < count; ++i) {
      user = int(2000 * rand()); item = int(1000 * rand() ^ 2)
      stars = 3 + sin(user) + cos(item) + sin(user * item) + rand() - 0.5
      stars = stars < 1 ? 1 : stars > 5 ? 5 : stars
      printf "%d\t%d\t%.1f\t%d\n", user * 7919 + 13, item * 104729 + 5, stars, 880000000 + i
    }
  }'
}
ratings 1 100000 >"$work/train.tsv"
ratings 2 5000 >"$work/test.tsv"
deploy/quickstart.sh --train "$work/train.tsv" --test "$work/test.tsv" \
  --report "$work/ratings.json" -- --epochs 2 2>&1 | tee "$work/printed"
has "test RMSE"
has "done .*reshard table moving_user_factors to 3"
has "done .*reshard table moving_item_factors to 3"
has "the same figures as without a move"
grep -q '"rmse"' "$work/ratings.json" || fail "no rmse in the report"
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
