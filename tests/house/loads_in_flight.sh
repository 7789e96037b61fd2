#!/usr/bin/env bash
# The CUDA kernels have the loads in flight that kernels/cuda/resources.toml asks for, in the
# machine code that the build has kept. cuobjdump is the one in PATH or beside nvcc; where there is
# none, it comes from the package index, into a virtual environment.
# Usage: loads_in_flight.sh NVCC MEASURED_DIR
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
nvcc="${1:?nvcc}"
measured="${2:?what the build has measured}"
if ! command -v cuobjdump >/dev/null && [[ ! -x "$(dirname "$nvcc")/cuobjdump" ]]; then
  source tests/house/venv.sh
  if ! make_venv cuobjdump nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37; then
    echo "SKIPPED: the package index has no cuobjdump for this machine"
    exit 77
  fi
  tools=("$venv"/lib/python3*/site-packages/nvidia/cu13/bin)
  export PATH="$PATH:${tools[0]}"
fi
exec python3 tools/kernel_resources.py kernels/cuda/resources.toml --nvcc "$nvcc" \
  --measured "$measured" --in-flight
