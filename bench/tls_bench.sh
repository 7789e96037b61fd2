#!/usr/bin/env bash
# Measures what TLS on every connection costs: a cluster of one node without it and one with it,
# asked in turns by embla-bench for lookups and updates of 4096 ids, dim 64, fp32, four in flight.
# "auto", the default, goes by a unix socket on one host, which is outside TLS as shared memory
# would be; "tcp" by a data socket as between hosts; "stream" by gRPC alone.
#
#   bench/tls_bench.sh [BIN_DIR]
#
# BIN_DIR: default build/release/bin. EMBLA_ROUNDS: turns of each (default 5). EMBLA_REQUESTS: per
# turn (2000). Prints medians; the aim is at least 0.75 of the rows per second without TLS.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin="${1:-build/release/bin}"
work="$(mktemp -d)"
# shellcheck source=bench/one_node_clusters.sh
source bench/one_node_clusters.sh

certs="$work/certs"
"$bin/embla" certs init --dir "$certs" --cluster bench >/dev/null
for role in coordinator node admin; do
  "$bin/embla" certs issue --dir "$certs" --role "$role" --name "${role/node/tls}"
done >/dev/null
flags() { echo --tls-cert "$certs/$1.pem" --tls-ca "$certs/ca.pem"; }

start_coordinator plain
run_node plain --devices cpu:1
read -ra tls <<<"$(flags coordinator-coordinator)"
start_coordinator tls "${tls[@]}"
read -ra tls <<<"$(flags node-tls)"
run_node tls --devices cpu:1 "${tls[@]}"
read -ra tls <<<"$(flags admin-admin)"

# rate KIND UPDATE_SHARE SEED TRANSPORT: rows per second of one turn.
rate() {
  local more=(--transport "$4")
  [[ "$1" == plain ]] || more+=("${tls[@]}")
  "$bin/embla-bench" --coordinator "$(address "$1" listen)" --admin "$(address "$1" admin)" \
    --update-share "$2" --in-flight 4 --rows 200000 --rounds 1 \
    --requests "${EMBLA_REQUESTS:-2000}" --seed "$3" --no-ceilings "${more[@]}" \
    -o json 2>/dev/null |
    tr -d '\n' | sed -n 's/.*"rows_per_second": *\([0-9.e+]*\), *"bytes_per.*/\1/p'
}
for ((round = 0; round < ${EMBLA_ROUNDS:-5}; ++round)); do
  for share in 0 1; do
    for transport in auto tcp stream; do
      echo "$transport $share $(rate plain "$share" "$round" "$transport")" \
        "$(rate tls "$share" "$round" "$transport")"
    done
  done
done >"$work/rates"

# median: of the numbers in its input.
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
printf '%-16s %14s %14s %6s\n' '' 'plain rows/s' 'TLS rows/s' ratio
for transport in auto tcp stream; do
  for share in 0 1; do
    rows="$(awk -v t="$transport" -v s="$share" '$1 == t && $2 == s' "$work/rates")"
    awk -v n="$([[ "$share" == 0 ]] && echo lookups || echo updates), $transport" \
      -v p="$(awk '{ print $3 }' <<<"$rows" | median)" \
      -v t="$(awk '{ print $4 }' <<<"$rows" | median)" \
      -v r="$(awk '{ print $4 / $3 }' <<<"$rows" | median)" \
      'BEGIN { printf "%-16s %14.0f %14.0f %6.2f\n", n, p, t, r }'
  done
done
