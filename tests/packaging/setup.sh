#!/usr/bin/env bash
# Installs what the tests of this folder need. Run it as often as you like: what is there already is left alone.
#   setup.sh ops     linters and schemas, in an environment of their own under .venv/ops; systemd-analyze, Chromium,
#                    and the proxies of tests/between: nginx, HAProxy, Caddy
#   setup.sh image   buildah, and build/image-base.tar: a small Debian with Python, made from Debian's own packages
# What only root on Debian can install and is missing elsewhere is said here, and by every test that is skipped for it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

say() { echo "$what: $*" >&2; }

# packages NAME...: Debian's, where they can be installed; policy-rc.d keeps their services from being started.
packages() (
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "missing: $*; only root on Debian can install them here"
    return 1
  fi
  say "installing $*"
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
)

linters() {
  local tools=$root/.venv/ops list=$here/requirements.txt
  cmp -s "$list" "$tools/.installed" && return
  say "installing linters and schemas into .venv/ops"
  "${PYTHON:-$root/.venv/bin/python}" -m venv "$tools"
  "$tools/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list"
  cp "$list" "$tools/.installed"
}

# A root file system that stands in for the image that the Dockerfile starts from.
base() {
  local made=$root/build/image-base.tar codename mirror
  [ -e "$made" ] && return
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk -v codename="$codename" '$1 == codename && $2 == "main" { print $3; exit }')
  say "making $made from Debian $codename (about two minutes, once)"
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip "$codename" "$folder/root" "$mirror" >"$folder/log" ||
    { tail -20 "$folder/log" >&2; return 1; }
  mkdir -p "$root/build"
  tar -C "$folder/root" --one-file-system --exclude=./var/cache/apt --exclude=./var/lib/apt/lists -cf "$folder/base.tar" .
  mv "$folder/base.tar" "$made"
}

what=${1:?ops or image}
case $what in
  ops)
    linters
    command -v systemd-analyze >/dev/null || packages systemd || true
    command -v chromium >/dev/null || packages chromium || true
    { command -v nginx && command -v haproxy && command -v caddy; } >/dev/null || packages nginx-light haproxy caddy || true
    ;;
  image)
    if { command -v buildah && command -v debootstrap; } >/dev/null || packages buildah debootstrap; then base; fi
    ;;
  *)
    say "no such set; ops or image"
    exit 2
    ;;
esac
