#!/usr/bin/env bash
# The commands at the top of docs/planner.md run as they are written, print what the page shows, and
# draw its picture.
# Usage: planner_example.sh BIN    (the folder of the programs)
set -euo pipefail
export LC_ALL=C

PATH="$(realpath "$1"):$PATH"
cd "$(dirname "${BASH_SOURCE[0]}")/../../docs"
page="$PWD/planner.md"
picture="$PWD/planner_example.svg"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"

awk '/^```sh$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$page" >example.sh
bash -e example.sh >printed || { cat printed; exit 1; }

# Two blocks begin with these words, and stand as they are in what was printed.
awk '/^```/ { inside = 0 }
  /^856 tables on |^from the previous plan$/ { inside = 1 }
  inside && NF' "$page" >shown
(($(wc -l <shown) > 10)) || { echo "the page shows no output"; exit 1; }
if grep --line-regexp --fixed-strings --invert-match --file printed shown; then
  echo "docs/planner.md shows these lines, which the example does not print"
  exit 1
fi
cmp plan.svg "$picture"
