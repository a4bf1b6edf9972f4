#!/usr/bin/env bash
# Installs Debian's Prometheus and Alertmanager for `make ops`, without starting their services. Does nothing, and says
# so, where that cannot be: the tests that need them are skipped then.
set -euo pipefail

say() { echo "ops: $*" >&2; }

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  say "prometheus and prometheus-alertmanager are not installed, and only root on Debian can install them here"
  exit 0
fi
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
say "installing prometheus and prometheus-alertmanager"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends prometheus prometheus-alertmanager >/dev/null
