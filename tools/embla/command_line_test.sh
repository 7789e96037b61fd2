#!/usr/bin/env bash
# The binary itself: exit codes, flags after verbs, JSON. Usage: command_line_test.sh PATH-OF-EMBLA
set -euo pipefail
export LC_ALL=C

embla="$1"
unset EMBLA_ADMIN EMBLA_COORDINATOR
failed=0

# expect CODE PATTERN ARGUMENTS...: the exit code, and a pattern in what is printed.
expect() {
  local code="$1" pattern="$2" printed status=0
  shift 2
  printed="$("$embla" "$@" 2>&1)" || status=$?
  if ((status != code)) || ! grep -q -e "$pattern" <<<"$printed"; then
    printf 'FAILED: embla %s\n  exit %s, expected %s and "%s" in:\n%s\n' \
      "$*" "$status" "$code" "$pattern" "$printed"
    failed=1
  fi
}

# Port 1 has no listener.
nobody=(--admin 127.0.0.1:1 --coordinator 127.0.0.1:1 --timeout 0.5)
shape=(--name clicks --rows 1600000000 --dim 64 --sharding row_wise)

expect 0 "Exit codes" --help
expect 0 "^embla [0-9]" --version
expect 0 "rows x columns" plan --help
expect 2 "embla needs one more word; embla knows: cluster, id," # Nothing at all.
expect 2 '"bogus" is unknown; embla knows: cluster, id,' bogus
expect 2 '"tabel" is unknown; did you mean .embla table.?' tabel ls
expect 2 '"lst" is unknown; did you mean .embla table ls.?' table lst
expect 2 'unknown flag --nmae; did you mean .--name.?' table create --nmae t --rows 3
expect 2 '"t" was not expected after embla node ls' node ls t
expect 2 '"exit_code": 2' -o json table lst
expect 3 '"code": "UNAVAILABLE"' cluster status "${nobody[@]}" -o json
expect 3 '"what_to_do": "check that' cluster status "${nobody[@]}" -o json
expect 2 "" table describe
expect 2 "" cluster status --bogus
expect 2 "'yaml' is not one of table, json" cluster status -o yaml
expect 3 "127.0.0.1:1" table create --name t --dim 4 --zch --capacity 10 --eviction-buffer 256MiB \
  --sharding row_wise "${nobody[@]}"
expect 2 'durability "none" is not one of node, queued, written, synced' table create --name t \
  --rows 10 --dim 4 --sharding row_wise --durability none "${nobody[@]}"
expect 2 "sharding" table create --name t --rows 10 --dim 4 "${nobody[@]}" --sharding rowwise
expect 3 "127.0.0.1:1" cluster status "${nobody[@]}"
expect 3 "127.0.0.1:1" top "${nobody[@]}"
expect 2 "interval is at least 1" top --interval 0 "${nobody[@]}"
expect 2 "\"debug\" is not one of info, warning, error" log level debug --admin 127.0.0.1:1
expect 2 "level is required" log level
expect 3 "127.0.0.1:1" log level n1 error "${nobody[@]}"
expect 0 "^trainer t0 [0-9a-f]\{64\} 20" token new trainer t0 --cluster c
expect 0 "^c/trainer/t0/[0-9a-f]\{64\}$" token new trainer t0 --cluster c --days 0
expect 2 "the role node needs a certificate" token new node n0 --cluster c
expect 2 "no role" token new boss b --cluster c
expect 4 "ca.pem" token new trainer t0 --dir /nonexistent
expect 2 "needs --tls-ca" cluster status --token-file /etc/hostname --admin 127.0.0.1:1
# At once, whatever the timeout.
expect 3 "Connection refused" cluster status --admin 127.0.0.1:1 --timeout 600
expect 3 "Connection refused" lookup --table t --ids 1 --coordinator 127.0.0.1:1 --timeout 600
expect 2 "is not host:port" cluster status --admin 127.0.0.1
expect 2 "is not host:port" cluster status --admin http://127.0.0.1:1
expect 3 "127.0.0.1:1" lookup --table t --ids 1,2 "${nobody[@]}"
expect 2 "is a directory" plan table --nodes 1 --file /etc
expect 2 'dtype "float32" is not one of fp32, fp16, bf16$' plan table --nodes 1 --name t --rows 9 \
  --dim 4 --sharding row_wise --dtype float32
expect 4 "cannot read" plan table --nodes 1 --file /nonexistent.yaml
expect 5 "" plan table "${shape[@]}" --nodes 2 --devices-per-node 8 --memory-per-device 1GiB
expect 0 "16 slices on 16 devices of 2 nodes" plan table "${shape[@]}" --nodes 2 \
  --devices-per-node 8
silent="$("$embla" plan table --name t --rows 1000 --dim 4 --sharding auto --nodes 2 2>&1)"
if grep -q "planner placement chosen" <<<"$silent"; then
  echo "FAILED: a log line in what plan table --sharding auto prints"
  failed=1
fi
expect 5 "64.0 GiB free: [0-9.]* GiB short" plan table "${shape[@]}" --nodes 1
expect 0 '"rows": 100000000,' plan table "${shape[@]}" --nodes 2 --devices-per-node 8 -o json
expect 0 '"rows": 100000000,' -o json plan table "${shape[@]}" --nodes 2 --devices-per-node 8
groups=(plan table "${shape[@]}" --nodes 2 --devices-per-node 8 --replica-groups)
expect 0 "16 slices on 16 devices of 2 nodes, in 2 replica groups, averaged when asked" \
  "${groups[@]}" 2
expect 0 '"replica_groups": 4' "${groups[@]}" 4 --memory-per-device 128GiB -o json
expect 2 "n0 has 8 devices, which cannot be divided into 3" "${groups[@]}" 3
stepped=(plan table "${shape[@]}" --nodes 2 --devices-per-node 8)
expect 0 "made without ranks that are silent for 2s; up to 8 steps ahead" "${stepped[@]}" \
  --sync --step-timeout-ms 2000
expect 0 '"on_silence": "fail"' "${stepped[@]}" --sync --on-silence fail --steps-ahead 2 -o json
expect 2 "steps_ahead_max" "${stepped[@]}" --sync --steps-ahead 0
expect 2 "are of tables with --sync" "${stepped[@]}" --on-silence fail
expect 3 "127.0.0.1:1" table sync clicks "${nobody[@]}"
expect 2 "shards is required" reshard --table t
expect 2 "granules" move --table t --granules 9-3 --to n0 "${nobody[@]}"
expect 2 "rate" rebalance --rate fast "${nobody[@]}"
expect 3 "127.0.0.1:1" node drain n0 --dry-run "${nobody[@]}"
expect 3 "127.0.0.1:1" job ls "${nobody[@]}"

# The planner, without a cluster.
inputs="$(mktemp -d)"
trap 'rm -rf "$inputs"' EXIT
printf 'name,rows,dim,pooling\na,1000000,64,3\nb,500000,128,1\n"c, d",10,16,20\n' >"$inputs/t.csv"
printf '"*": {kernels: [device]}\n' >"$inputs/rules.yaml"
solve=(plan solve --tables "$inputs/t.csv")
expect 0 "3 tables on 1 host, 2 devices" "${solve[@]}" --topology 1x2 --check
expect 0 '"lower_bound_ms":' "${solve[@]}" --topology 1x2 -o json --svg "$inputs/plan.svg"
expect 0 "embla" "${solve[@]}" --topology 2x2 --cost embla --batch 64
expect 2 "tables is required" plan solve --topology 1x2
expect 2 "topology is missing" "${solve[@]}"
expect 2 "torchrec, embla" "${solve[@]}" --topology 1x2 --cost cheap
expect 4 "cannot read" plan solve --tables "$inputs/none.csv" --topology 1x2
expect 5 "device" "${solve[@]}" --topology 1x2 --device-memory 1MiB \
  --constraints "$inputs/rules.yaml"
grep -q "</svg>" "$inputs/plan.svg" || failed=1
"$embla" "${solve[@]}" --topology 1x2 -o json >"$inputs/plan.json"
check=(plan check "$inputs/plan.json" --tables "$inputs/t.csv")
expect 0 "accepted" "${check[@]}" --topology 1x2
expect 5 "topology changed" "${check[@]}" --topology 1x3

# Certificates, and what the CLI says of its own.
ca=(--dir "$inputs/certs")
expect 2 "trust domain" certs init "${ca[@]}" --cluster Prod
expect 0 "authority of cluster prod" certs init "${ca[@]}" --cluster prod
expect 5 "exists" certs init "${ca[@]}" --cluster prod
expect 2 "roles are coordinator node" certs issue "${ca[@]}" --role boss --name x
expect 0 "spiffe://prod/admin/ann" certs issue "${ca[@]}" --role admin --name ann
expect 0 "not_after" certs issue "${ca[@]}" --role reader --name r --days 7 -o json
expect 0 "6 days" certs show "$inputs/certs/reader-r.pem" "$inputs/certs/ca.pem"
expect 0 "1 revoked" certs revoke "${ca[@]}" "$inputs/certs/reader-r.pem"
modes="$(stat -c %a "$inputs/certs/ca.key" "$inputs/certs/admin-ann.pem" | sort -u)"
[[ "$modes" == 600 ]] || failed=1
tls=(--tls-cert "$inputs/certs/admin-ann.pem" --tls-ca "$inputs/certs/ca.pem")
expect 3 "over TLS as spiffe://prod/admin/ann" cluster status "${nobody[@]}" "${tls[@]}"
expect 2 "TLS needs" cluster status "${nobody[@]}" --tls-cert "$inputs/certs/admin-ann.pem"
expect 1 "revoked" cluster status "${nobody[@]}" --tls-cert "$inputs/certs/reader-r.pem" \
  --tls-ca "$inputs/certs/ca.pem" --tls-revoked "$inputs/certs/revoked"

exit "$failed"
