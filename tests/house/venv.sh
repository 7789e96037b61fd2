# For scripts of tests to source. make_venv NAME ARGUMENT...: `venv` is a virtual environment in
# build/python, made once, for which pip install has had these arguments. Ends the script with 77
# when the package index cannot be reached; fails when pip does.
set -euo pipefail

make_venv() {
  venv="$PWD/build/python/$1"
  shift
  mkdir -p build/python
  exec 9>"$venv.lock"
  flock 9
  [[ -f "$venv/made-of" && "$(cat "$venv/made-of")" == "$*" ]] && return
  rm -rf "$venv"
  python3 -m venv "$venv"
  local pip=("$venv/bin/pip" --disable-pip-version-check) probe
  probe="$(mktemp -d)"
  if ! "${pip[@]}" download --quiet --no-deps --dest "$probe" iniconfig; then
    rm -rf "$probe"
    echo "SKIPPED: the package index cannot be reached, so there is nothing to test with"
    exit 77
  fi
  rm -rf "$probe"
  "${pip[@]}" install --quiet "$@" || return
  echo "$*" >"$venv/made-of"
}
