#!/usr/bin/env bash
# containerd-versions.sh 1.7|2.1 - fetches a containerd that is newer than Debian 12's, and
# prints the folder that its containerd, ctr and containerd-shim-runc-v2 are in. Suites take
# them from there when LAZYCG_TEST_CONTAINERD names that folder.
#
# 1.7 is the one of Debian 13. 2.1 is the one of Debian unstable, which moves: 2.1 or later is
# taken. Nothing is installed. What has been fetched before is kept below target/containerd/ and
# taken again; remove that folder to have them anew.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
# shellcheck source=hack/debian-suite.sh
. "$repository/hack/debian-suite.sh"

wanted=${1:-}
case $wanted in
    1.7) suite=trixie oldest=1.7 newest=1.8 ;;
    2.1) suite=sid oldest=2.1 newest=3 ;;
    *) echo "usage: $0 1.7|2.1" >&2; exit 2 ;;
esac
kept=$repository/target/containerd/$wanted

if [ ! -x "$kept/usr/bin/containerd" ]; then
    unpack_packages "$suite" "$kept" containerd
    version=$(awk '$1 == "containerd" { print $2 }' "$kept/packages")
    if ! dpkg --compare-versions "$version" ge "$oldest" ||
        ! dpkg --compare-versions "$version" lt "$newest"; then
        rm -rf "$kept"
        echo "$0: $suite has containerd $version, not $wanted" >&2
        exit 1
    fi
    "$kept/usr/bin/containerd" --version >&2
fi
echo "$kept/usr/bin"
