#!/usr/bin/env bash
# containerd-versions.sh 1.7|2.1 - fetches a containerd that is newer than Debian 12's, and
# prints the folder that its containerd, ctr and containerd-shim-runc-v2 are in. Suites take
# them from there when LAZYCG_TEST_CONTAINERD names that folder.
#
# 1.7 is the one of Debian 13. 2.1 is the one of Debian unstable, which moves: 2.1 or later is
# taken. Nothing is installed, and apt's configuration and state of this host stay as they are:
# apt gets a list and folders of its own here, and the mirror, the proxy and the keys of the
# host. What has been fetched before is kept below target/containerd/ and taken again; remove
# that folder to have them anew.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"

wanted=${1:-}
case $wanted in
    1.7) suite=trixie oldest=1.7 newest=1.8 ;;
    2.1) suite=sid oldest=2.1 newest=3 ;;
    *) echo "usage: $0 1.7|2.1" >&2; exit 2 ;;
esac
kept=$repository/target/containerd/$wanted
# The signature of a list is checked against these keys; Debian 12's know Debian 13 and sid.
keys=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { echo "$0: $*" >&2; exit 1; }

if [ ! -x "$kept/usr/bin/containerd" ]; then
    mkdir -p "${kept%/*}"
    work=$(mktemp -d "$kept.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/apt/none" "$work/unpacked"

    # where this host has its own suite from
    # shellcheck source=/dev/null
    own_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # apt's variables
    mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' \
        'Created-By: Packages' 'Component: main' |
        awk -v suite="$own_suite" '$1 == suite { print $2; exit }')
    [ -n "$mirror" ] || fail "apt's sources name no mirror of Debian's $own_suite"
    echo "deb [signed-by=$keys] $mirror $suite main" > "$work/apt/sources.list"

    : > "$work/apt/status"
    cat > "$work/apt/apt.conf" << END
Dir::State "$work/apt";
Dir::State::lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt";
Dir::Cache::archives "$work/apt/archives";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "$work/apt/none";
Dir::Etc::preferences "$work/apt/no-preferences";
Dir::Etc::preferencesparts "$work/apt/none";
// its own user could not write here
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
// what the host does after its own updates is not for these lists
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
// only the list of packages
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::Contents-deb;
END
    apt() { (cd "$work/apt/archives" && apt-get -qq -c "$work/apt/apt.conf" "$@") >&2; }
    # an update that fails may be a warning only; without a list there is no package
    apt update -o APT::Update::Error-Mode=any
    apt download containerd
    package=$(echo "$work"/apt/archives/containerd_*.deb)
    version=$(dpkg-deb --field "$package" Version)
    dpkg --compare-versions "$version" ge "$oldest" && dpkg --compare-versions "$version" lt "$newest" ||
        fail "$suite has containerd $version, not $wanted"
    dpkg-deb --extract "$package" "$work/unpacked"
    "$work/unpacked/usr/bin/containerd" --version >&2
    # whole, or not at all: two may do this at the same time
    rm -rf "$kept"
    mv -T "$work/unpacked" "$kept" || [ -x "$kept/usr/bin/containerd" ]
fi
echo "$kept/usr/bin"
