#!/usr/bin/env bash
# Installs the tools of `make sbom` and `make audit` into an environment of their own, once for each version of the list.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=$root/.venv/supply list=$here/requirements.txt

cmp -s "$list" "$tools/.installed" && exit
echo "supply: installing the tools for SBOM and audit into .venv/supply" >&2
"${PYTHON:-$root/.venv/bin/python}" -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list"
cp "$list" "$tools/.installed"
