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
apt-get -qq -o Acquire::Retries=3 update
apt-get -qq -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}" < /dev/null > /dev/null
