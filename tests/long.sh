#!/usr/bin/env bash
# Headers, each alone; the tests with label `long`; then chaos, restores of coordinator and nodes
# from older copies, and trials of copies that come, go, lead, die and are lost, leaders of
# coordinators that are killed, stopped and cut off, and coordinators killed and links cut amid
# reshards, in pieces: hours in all.
# Each piece that ends well adds a row to the table at the end of docs/correctness.md: part,
# protocol, commit, seed, counts. The first one that does not ends the run.
#
#   tests/long.sh            all parts from their first seeds, until the counts below are reached
#   tests/long.sh --resume   goes on behind the rows that the table has of today's protocol; tests
#                            with label `long` run where it has none of today's commit
#
# Counts of one protocol add up. Raise `protocol` when servers and clients of before can no longer
# talk to today's: what they have shown counts no more.
#
# Needs a build: cmake --build --preset release. EMBLA_BUILD: another build directory.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="${EMBLA_BUILD:-build/release}"
page=docs/correctness.md
protocol=4
faults_wanted=3600
faults_piece=300
failovers_wanted=300
failovers_piece=50
kills_wanted=50
cuts_wanted=50
restores_wanted=40
restores_piece=5
trials_wanted=2400
trials_piece=600

case "${1:-}" in
  "") resume=0 ;;
  --resume) resume=1 ;;
  *)
    echo "usage: $0 [--resume]" >&2
    exit 2
    ;;
esac

# rows PART: how many rows of today's protocol the table has.
rows() {
  ((resume)) || { echo 0 && return; }
  grep -c "^| $1 | $protocol | " "$page" || true
}

commit="$(git rev-parse --short HEAD)"
git diff --quiet HEAD -- . ":!$page" || commit+="-dirty"

# append PART SEED COUNTS
append() {
  printf '| %s | %s | %s | %s | %s |\n' "$1" "$protocol" "$commit" "$2" "$3" >>"$page"
}

log="$(mktemp)"
trap 'rm -f "$log"' EXIT

if ((!resume)) || ! grep -q "^| tests | $protocol | $commit | " "$page"; then
  cmake --build "$build" --target embla_headers
  ctest --test-dir "$build" --label-regex '^long$' --output-on-failure | tee "$log"
  append tests fixed "$(grep 'tests passed' "$log")"
fi

done_pieces="$(rows chaos)"
for ((piece = done_pieces; piece * faults_piece < faults_wanted; piece++)); do
  seed=$((12001 + piece))
  tests/fault/chaos.sh --faults "$faults_piece" --seed "$seed" --shards 6 --lanes 4 --devices 2 |
    tee "$log"
  append chaos "$seed" "$(tail -n 1 "$log")"
done

done_pieces="$(rows restore)"
for ((piece = done_pieces; piece * restores_piece < restores_wanted; piece++)); do
  seed=$((1 + piece))
  EMBLA_RESTORES="$restores_piece" EMBLA_RESTORE_SEED="$seed" EMBLA_BIN_DIR="$PWD/$build/bin" \
    "$build/tests/restore_test" --gtest_filter='RestoreTest.Loop' | tee "$log"
  append restore "$seed" "$(grep '^restores ' "$log")"
done

# Each seed is two trials: with and without a node that is lost for ever.
done_pieces="$(rows copies)"
for ((piece = done_pieces; piece * trials_piece < trials_wanted; piece++)); do
  first=$((1 + piece * trials_piece / 2))
  for ((seed = first; seed < first + trials_piece / 2; seed++)); do
    EMBLA_TEST_SEED="$seed" "$build/tests/copies_recovery_test" >"$log" 2>&1 || {
      tail -n 200 "$log"
      exit 1
    }
  done
  append copies "$first" "trials=$trials_piece with a copy behind, an update lost or doubled 0"
done

# Leaders of coordinators on etcd, killed, stopped and cut off.
done_pieces="$(rows failovers)"
for ((piece = done_pieces; piece * failovers_piece < failovers_wanted; piece++)); do
  seed=$((1 + piece))
  EMBLA_FAILOVERS="$failovers_piece" EMBLA_TEST_SEED="$seed" EMBLA_BIN_DIR="$PWD/$build/bin" \
    "$build/tests/coordinators_test" --gtest_filter='CoordinatorsTest.*AnyMoment*' | tee "$log"
  append failovers "$seed" "$(grep '^failovers=' "$log")"
done

# The only coordinator killed amid reshards.
if (($(rows kills) == 0)); then
  EMBLA_COORDINATOR_KILLS="$kills_wanted" EMBLA_TEST_SEED=1 EMBLA_BIN_DIR="$PWD/$build/bin" \
    "$build/tests/coordinator_away_test" | tee "$log"
  append kills 1 "$(grep '^kills=' "$log")"
fi

# Links cut amid reshards: of all kinds, then to the coordinator while nodes have data sockets.
if (($(rows cuts) == 0)); then
  EMBLA_LINK_CUTS="$cuts_wanted" EMBLA_TEST_SEED=1 "$build/tests/cut_links_test" | tee "$log"
  while read -r counts; do append cuts 1 "$counts"; done < <(grep '^cuts=' "$log")
fi
