#!/usr/bin/env bash
# `table create` waits for nodes that are alive, however short --timeout is, and ends when one dies.
# Usage: create_wait_test.sh FOLDER-OF-PROGRAMS
set -euo pipefail
export LC_ALL=C

programs="$1"
folder="$(mktemp -d)"
pids=()
trap 'kill -KILL "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT

# await FILE: until it is there, for at most a minute.
await() {
  for ((i = 0; i < 600; ++i)); do
    [[ -s "$1" ]] && return
    read -r -t 0.1 <> <(:) || true
  done
  echo "FAILED: no $1"
  exit 1
}
# port NAME FILE: an address in a port file.
port() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$2"; }

"$programs/embla-coordinator" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --metrics-listen "" \
  --state-dir "$folder/state" --dead-after-ms 4000 --port-file "$folder/c" 2>"$folder/c.log" &
pids+=($!)
await "$folder/c"
"$programs/embla-shard" --name n0 --coordinator "$(port listen "$folder/c")" --devices cpu:1 \
  --memory-per-device 64MiB --listen 127.0.0.1:0 --metrics-listen "" --port-file "$folder/s" \
  2>"$folder/s.log" &
shard=$!
pids+=("$shard")
await "$folder/s"
embla=("$programs/embla" --admin "$(port admin "$folder/c")" --timeout 1)
for ((i = 0; i < 600; ++i)); do
  "${embla[@]}" node ls | grep -q " live " && break
  read -r -t 0.1 <> <(:) || true
done

kill -STOP "$shard"
status=0
create=(table create --name t --rows 100 --dim 4 --sharding row_wise)
printed="$("${embla[@]}" "${create[@]}" 2>&1)" || status=$?
if ((status != 3)) || ! grep -q "n0 .* went down before it had installed" <<<"$printed"; then
  printf 'FAILED: exit %s, printed: %s\n' "$status" "$printed"
  exit 1
fi
