# shellcheck shell=bash
# toolchain.sh - for scripts of this folder to source: the repository, its owner, and cargo.
#
# Under sudo PATH and HOME are root's, but cargo, its downloads and target/ are the caller's
# and stay theirs: what builds runs as the caller, what needs root runs as root.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
owner=$(id -un)
if [ "$owner" = root ] && [ -n "${SUDO_USER:-}" ]; then owner=$SUDO_USER; fi
owner_home=$(getent passwd "$owner" | cut -d: -f6)
PATH=$PATH:$owner_home/.cargo/bin

# What stands before a command that is to run as who owns the build; nothing if that is us.
owner_prefix=()
if [ "$(id -un)" != "$owner" ]; then
    owner_prefix=(runuser -u "$owner" -- env HOME="$owner_home" PATH="$PATH")
fi
as_owner() { "${owner_prefix[@]}" "$@"; }

need_root() {
    [ "$(id -u)" = 0 ] || { echo "$0: containers and cgroups need root: sudo $0" >&2; exit 1; }
}

need_cargo() {
    command -v cargo > /dev/null && return
    echo "$0: cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' \
        "$repository/Cargo.toml") or later (rustup, as $owner)" >&2
    exit 1
}
