#!/usr/bin/env bash
# Checks the programs' messages about damaged directories, and about a file that reaches its size
# limit: words that an alert can look for, and never a death by SIGXFSZ.
# Usage: tests/house/damaged_files.sh BIN    (the folder of the programs)
set -euo pipefail
export LC_ALL=C

bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
coordinator=("$bin/embla-coordinator" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0
  --metrics-listen "" --state-dir "$folder/state")
shard=("$bin/embla-shard" --name n0 --listen 127.0.0.1:0 --metrics-listen ""
  --coordinator 127.0.0.1:1 --devices cpu:1 --memory-per-device 1MiB --data-dir "$folder/data")

# says CODE WORDS COMMAND...: it ends by itself, not by a signal, and says CODE and WORDS.
says() {
  local code=$1 words=$2 status=0
  shift 2
  # By a pipe: the limit would hold for the output, too.
  timeout 60 "$@" 2>&1 | cat >"$folder/out" || status=$?
  if ((status == 0 || status >= 124)) || ! grep -q "$code.*$words" "$folder/out"; then
    echo "expected $code and '$words' (status $status) of: $*"
    cat "$folder/out"
    exit 1
  fi
}

# A state directory that lost its two files, and a data directory without segments.
mkdir "$folder/state" "$folder/data"
echo "begun" >"$folder/state/begun"
says DATA_LOSS "state/snapshot is missing, at offset 0" "${coordinator[@]}"
printf 'EMBLANEW' >"$folder/data/newest"
says DATA_LOSS "data/newest is corrupt at offset 0" "${shard[@]}"

# No room for a first file: a limit stands for a full disk.
rm -r "$folder/state" "$folder/data"
says RESOURCE_EXHAUSTED "File too large" prlimit --fsize=10 "${coordinator[@]}"
says RESOURCE_EXHAUSTED "File too large" prlimit --fsize=10 "${shard[@]}"
