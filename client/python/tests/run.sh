#!/usr/bin/env bash
# Builds the Python package's native module and runs its tests in virtual environments of its own.
#
#   client/python/tests/run.sh numpy   calls, arrays, processes: needs no torch
#   client/python/tests/run.sh torch   operators, modules, checkpoints; installs torch and TorchRec
#   client/python/tests/run.sh slow    those that take minutes: numerics beside FBGEMM, leaks
#   client/python/tests/run.sh wheels  builds wheels; uses them in an empty virtual environment and,
#                                      as root and with debootstrap, in an empty Debian
#   client/python/tests/run.sh oldest  operators, modules and checkpoints with the oldest torch and
#                                      NumPy that are supported, which it installs (1.7 GB)
#   client/python/tests/run.sh bench   no tests: what calls and training steps cost beside the C++
#                                      client, and what a pipeline hides (docs/benchmarks.md); fails
#                                      where a bar is missed, so the machine has to be quiet
#   client/python/tests/run.sh prepare installs and builds what numpy, torch and slow need, and runs
#                                      nothing
#   client/python/tests/run.sh build_wheels   builds wheels into build/python/wheels
#
# EMBLA_BIN_DIR: coordinator and shard servers (default build/release/bin). EMBLA_WHEELS: a folder
# of wheels to test in place of new ones. EMBLA_JOBS: how many compilers make a wheel. Ends with 77,
# skipped, where the package index cannot be reached, or that folder has no wheels. Tests that
# pytest skips are listed at the end, and kept in build/python/skipped-LEVEL.txt.
set -euo pipefail
export LC_ALL=C

level="${1:-}"
[[ "$level" =~ ^(numpy|torch|slow|wheels|oldest|bench|prepare|build_wheels)$ ]] || {
  echo "usage: $0 numpy|torch|slow|wheels|oldest|bench|prepare|build_wheels" >&2
  exit 2
}
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
export EMBLA_BIN_DIR="${EMBLA_BIN_DIR:-$PWD/build/release/bin}"
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
folder="$PWD/build/python"
mkdir -p "$folder"

# One at a time: both levels share the module.
exec 9> "$folder/lock"
flock 9

native=(mypy==2.4.1 nanobind==3.1.0 numpy==2.4.6 pytest==9.2.0)
# All that torch and TorchRec import, by name and without what they ask for: that would be gigabytes
# of CUDA libraries, which nothing here calls (torch/nvidia_stubs.py stands in for them).
torch=(--no-deps torch==2.14.1 fbgemm-gpu-cpu==1.9.0 torchrec==1.9.2 ast-serialize
  cloudpickle==3.1.2 contourpy cycler expecttest==0.3.0 filelock fonttools fsspec
  importlib_metadata iniconfig jinja2 kiwisolver librt lightning-utilities==0.15.3
  markdown2==2.5.4 markupsafe matplotlib==3.11.2 mpmath mypy==2.4.1 mypy_extensions networkx
  numpy==2.4.6 orjson packaging pathspec pdoc==16.0.0 pillow pluggy pygments pyparsing
  pyre-extensions==0.0.32 pytest==9.2.0 python-dateutil 'pyvers<0.3' safetensors==0.8.0
  'setuptools<81' sympy tensordict==0.15.3 torchmetrics==1.9.0 tqdm typing_extensions
  typing-inspect zipp)
oldest=(--no-deps torch==2.6.0 expecttest==0.3.0 filelock fsspec iniconfig jinja2 markupsafe mpmath
  networkx numpy==1.26.4 packaging pluggy pygments pytest==9.2.0 safetensors==0.8.0 'setuptools<81'
  sympy==1.13.1 typing_extensions)

index_answers() { "$1/bin/pip" download --quiet --no-deps --dest "$(mktemp -d)" iniconfig; }

# environment NAME PACKAGES...: made once, and again when what it is made of changes.
environment() {
  local name="$folder/$1" wanted
  shift
  wanted="$(python3 --version) $*"
  [[ -f "$name/made-of" && "$(cat "$name/made-of")" == "$wanted" ]] && return
  rm -rf "$name"
  python3 -m venv "$name"
  if ! index_answers "$name"; then
    echo "SKIPPED: the package index cannot be reached, so there is nothing to test with"
    exit 77
  fi
  "$name/bin/pip" install --quiet --disable-pip-version-check "$@"
  echo "$wanted" > "$name/made-of"
}

prepare_native() {
  environment venv "${native[@]}"
  # The same options as preset release, and the same depth in the tree: the compiler's cache then
  # has all but the module.
  cmake -S . -B build/python-module -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DEMBLA_UNITY=64 -DEMBLA_PYTHON_PACKAGE=ON -DEMBLA_CLIENT_ONLY=ON -DEMBLA_CUDA=OFF \
    -DEMBLA_TESTS=OFF -DEMBLA_BENCHMARKS=OFF -DPython_EXECUTABLE="$folder/venv/bin/python" \
    > "$folder/configure.log" || {
    cat "$folder/configure.log"
    exit 1
  }
  nice cmake --build build/python-module --target _native client_calls > "$folder/build.log" || {
    tail -n 40 "$folder/build.log"
    exit 1
  }
}

# prepare_torch NAME PACKAGES...: stand-ins of the CUDA libraries belong to one version of torch.
prepare_torch() {
  local name="$1" site stubs
  shift
  environment "$name" "$@"
  site="$(echo "$folder/$name"/lib/python3.*/site-packages)"
  stubs="$folder/$name/nvidia"
  if [[ ! -d "$site/nvidia" && ! -d "$stubs" ]]; then
    "$folder/$name/bin/python" client/python/tests/torch/nvidia_stubs.py "$site" "$stubs.new"
    mv "$stubs.new" "$stubs"
  fi
  export LD_LIBRARY_PATH="$stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# Interpreters that one wheel serves, those of pyenv included; the oldest first.
newer_pythons() {
  local python
  for python in python3.1{2,3,4,5} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
    "$python" -c 'import sys, venv; assert sys.version_info >= (3, 12); print(sys.executable)' \
      2>/dev/null || true
  done
}

# run PYTHON TESTS...: pytest ends with 5 where nothing is marked as asked for.
run() {
  local python="$1" status=0
  shift
  (cd client/python && PYTHONPATH="$PWD" nice "$python" -m pytest --quiet -p no:cacheprovider \
    "${marked[@]}" "$@") | tee "$folder/pytest.log" || status=$?
  grep '^SKIPPED' "$folder/pytest.log" >> "$skipped" || true
  ((status == 0 || (status == 5 && ${#marked[@]} > 0))) || exit "$status"
}

# build_wheels: the server programs inside, and without them.
build_wheels() {
  rm -rf "$folder/wheels"
  deploy/build_wheels.sh --python "$folder/venv/bin/python" "$folder/wheels/full"
  deploy/build_wheels.sh --python "$folder/venv/bin/python" --client-only "$folder/wheels/client"
  local newer
  newer="$(newer_pythons)"
  [[ -z "$newer" ]] || deploy/build_wheels.sh --python "${newer%%$'\n'*}" --client-only \
    "$folder/wheels/abi3"
}

# Every bar is looked at, whichever is missed.
measure() {
  local python="$folder/venv-torch/bin/python" status=0
  local calls="$PWD/build/python-module/bench/client_calls"
  cd client/python/bench
  export PYTHONPATH="$PWD/.."
  "$python" overhead.py "$calls" --module || status=1
  "$python" overhead.py "$calls" --large || status=1
  "$python" torch_step.py "$calls" || status=1
  return "$status"
}

# Tests that take minutes belong to a level of their own: they are not asked for, and not skipped.
marked=(-m 'not slow')
[[ "$level" != slow && "$level" != wheels ]] || marked=(--slow -m slow)
skipped="$folder/skipped-$level.txt"
: > "$skipped"
trap '[[ ! -s "$skipped" ]] || { echo "== skipped at level $level"; cat "$skipped"; }' EXIT
prepare_native
if [[ "$level" == build_wheels ]]; then
  build_wheels
  exit 0
fi
if [[ "$level" == wheels ]]; then
  if [[ -z "${EMBLA_WHEELS:-}" ]]; then
    build_wheels
    export EMBLA_WHEELS="$folder/wheels"
  elif [[ ! -d "$EMBLA_WHEELS" ]]; then
    echo "SKIPPED: there is no folder $EMBLA_WHEELS; $0 build_wheels makes it"
    exit 77
  fi
  newer="$(newer_pythons)"
  export EMBLA_NEWER_PYTHONS="${newer//$'\n'/:}"
  run "$folder/venv/bin/python" tests/test_wheels.py tests/test_wheels_in_debian.py \
    tests/test_abi3.py
  exit 0
fi
if [[ "$level" == numpy || "$level" == slow ]]; then
  run "$folder/venv/bin/python" tests --ignore tests/torch --ignore tests/torchrec \
    --ignore-glob 'tests/test_wheels*' --ignore tests/test_abi3.py
fi
[[ "$level" != numpy ]] || exit 0
if [[ "$level" == oldest ]]; then
  prepare_torch venv-torch-oldest "${oldest[@]}"
  run "$folder/venv-torch-oldest/bin/python" tests/torch
  exit 0
fi
prepare_torch venv-torch "${torch[@]}"
[[ "$level" != prepare ]] || exit 0
[[ "$level" != bench ]] || { measure; exit; }
run "$folder/venv-torch/bin/python" tests/torch tests/torchrec
