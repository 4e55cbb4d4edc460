#!/usr/bin/env bash
# install-packages.sh PACKAGE... - installs those of these Debian packages that are missing.
set -euo pipefail

missing=()
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q ' installed$' || missing+=("$package")
done
[ ${#missing[@]} != 0 ] || exit 0

[ "$(id -u)" = 0 ] || { echo "$0: missing: ${missing[*]} (installing needs root)" >&2; exit 1; }
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Another apt, such as a new machine's own upgrades, may hold the lock for a while.
options=(-qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --no-install-recommends "${missing[@]}" < /dev/null > /dev/null
