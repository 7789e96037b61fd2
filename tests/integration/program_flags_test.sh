#!/usr/bin/env bash
# Wrong flags end a program at once, with exit code 2 and a sentence; help is plain text.
# Usage: program_flags_test.sh FOLDER-OF-PROGRAMS
set -euo pipefail
export LC_ALL=C

programs="$1"
unset EMBLA_ADMIN EMBLA_COORDINATOR
failed=0

# expect CODE PATTERN PROGRAM ARGUMENTS...: the exit code, and a pattern in what is printed.
expect() {
  local code="$1" pattern="$2" printed status=0
  shift 2
  printed="$(timeout 60 "$programs/$1" "${@:2}" 2>&1)" || status=$?
  if ((status != code)) || ! grep -q -e "$pattern" <<<"$printed"; then
    printf 'FAILED: %s\n  exit %s, expected %s and "%s" in:\n%s\n' \
      "$*" "$status" "$code" "$pattern" "$printed"
    failed=1
  fi
}

shard=(embla-shard --coordinator 127.0.0.1:1 --metrics-listen "" --listen 127.0.0.1:0)
expect 2 "coordinator is required" embla-shard
expect 2 'unknown flag --lisen; did you mean .--listen.?' embla-shard --lisen 127.0.0.1:0
expect 2 'unknown flag --state-dri; did you mean .--state-dir.?' embla-coordinator --state-dri s
expect 2 'unknown flag --epoch; did you mean .--epochs.?' embla-train --generate 1000 --epoch 3
expect 1 "Connection refused" embla-train --generate 1000 --coordinator 127.0.0.1:1 --timeout 600
expect 2 "is not host:port" embla-train --generate 1000 --coordinator 127.0.0.1 --timeout 600
expect 2 "is not host:port" embla-train --generate 1000 --coordinator http://a:1 --timeout 600
expect 2 "'fast' is not one of none, queued, written, synced" "${shard[@]}" --durability fast
expect 2 "'xml' is not one of text, json" "${shard[@]}" --log-format xml
expect 2 "durability needs --data-dir" "${shard[@]}" --durability synced
expect 2 "port-file: cannot write /nowhere/ports: No such file" "${shard[@]}" \
  --port-file /nowhere/ports
expect 2 "state-dir is required" embla-coordinator
expect 2 "port-file: cannot write /nowhere/ports: No such file" embla-coordinator \
  --state-dir /nowhere --port-file /nowhere/ports
expect 2 "report: cannot write /nope/x.json: No such file" embla-train --generate 1000 \
  --report /nope/x.json
expect 2 "export: .*Not a directory" embla-train --generate 1000 --export /dev/null/tables
for program in embla embla-shard embla-coordinator embla-train; do
  if "$programs/$program" --help | grep -P '[^\x20-\x7e]'; then
    printf 'FAILED: %s --help has control characters\n' "$program"
    failed=1
  fi
done
exit "$failed"
