#!/usr/bin/env bash
# demo.sh - see lazycg at work: a container runs now and is limited later.
#
#   sudo hack/demo.sh
#
# Installs what is missing (Debian's packages; Rust must be there), builds, starts a
# containerd of its own, and removes everything again, also when a step fails. It makes
# cgroups named lazycg-demo, and touches no other container of the host.
set -euo pipefail

# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$repository"
# shellcheck source=hack/containerd.sh
. hack/containerd.sh
need_root
if [ "$(stat --file-system --format %T /sys/fs/cgroup)" = cgroup2fs ]; then
    echo "$0: this host has cgroup v2 alone, which lazycg does not support yet." >&2
    echo "Boot with the kernel parameter systemd.unified_cgroup_hierarchy=0 to try it." >&2
    exit 1
fi

export CONTAINERD_NAMESPACE=lazycg-demo
container=busybox1
folder=
loop=

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# Shows a command and runs it.
show() {
    printf '$ %s\n' "$*"
    "$@"
}

# Runs a command in the container, and shows its exit code if that is not 0.
inside() {
    local code=0
    printf '(in %s) $ %s\n' "$container" "$*"
    ctr tasks exec --fifo-dir "$folder/fifo" --exec-id "demo-$((++execs))" "$container" "$@" ||
        code=$?
    case $code in
        0) ;;
        137) echo "killed (exit code 137)" ;;
        *) echo "exit code $code" ;;
    esac
}
execs=0

cleanup() {
    local code=$?
    trap - EXIT INT TERM
    set +e
    say "Cleaning up"
    if [ $code != 0 ] && [ -e "$folder/containerd.log" ]; then
        echo "failed with exit code $code; containerd's last words:"
        tail -n 20 "$folder/containerd.log"
    fi
    [ -z "${containerd_pid-}" ] || remove_containers
    stop_containerd "$folder"
    # What was mounted is not any more.
    [ -z "$loop" ] || losetup --detach "$loop"
    # The shared parents of the container's cgroups, and runc's folder of the namespace.
    rmdir /sys/fs/cgroup/*/"$CONTAINERD_NAMESPACE" "/run/containerd/runc/$CONTAINERD_NAMESPACE" \
        2> /dev/null
    [ -z "$folder" ] || rm -rf --one-file-system "$folder"
    exit $code
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "Installing what is missing, and building"
hack/install-packages.sh build-essential protobuf-compiler containerd runc busybox-static \
    e2fsprogs mount util-linux
need_cargo
as_owner cargo build --workspace
PATH=$repository/target/debug:$PATH

say "Starting a containerd that finds the shim on its PATH"
folder=$(mktemp -d /tmp/lazycg-demo.XXXXXX)
start_containerd "$folder"
read -r image archive < <(as_owner target/debug/image)
show ctr images import "$archive"

# A small disk of its own, so that a limit of block I/O slows nothing else.
truncate --size 64M "$folder/disk.img"
loop=$(losetup --find --show "$folder/disk.img")
mkfs.ext4 -q "$loop"
mkdir "$folder/data"
mount "$loop" "$folder/data"

say "A container without limits"
show ctr run --detach --fifo-dir "$folder/fifo" --runtime io.containerd.lazycg.v1 \
    --mount "type=bind,src=$folder/data,dst=/data,options=rbind" \
    "$image" "$container" sh -c 'sleep 100000 & sleep 100000 & wait'

say "It has its own cgroup only where it must"
show lazycg status "$container"

say "So it allocates 100 MiB, and writes as fast as the disk takes it"
inside dd if=/dev/zero of=/dev/null bs=100M count=1
inside time dd if=/dev/zero of=/data/file bs=1M count=8 oflag=direct

say "Now limit memory, and writes to the disk at /data"
show lazycg update "$container" --memory 64m --memory-swap 64m
show lazycg update "$container" --device-write-bps "$loop:2mb"

say "It has joined the two hierarchies, with every process"
show lazycg status "$container"

say "The limits hold: 100 MiB are too much, and 8 MiB take four seconds"
inside dd if=/dev/zero of=/dev/null bs=100M count=1
inside time dd if=/dev/zero of=/data/file bs=1M count=8 oflag=direct
cgroup=$CONTAINERD_NAMESPACE/$container
show grep --with-filename . "/sys/fs/cgroup/memory/$cgroup/memory.limit_in_bytes" \
    "/sys/fs/cgroup/memory/$cgroup/memory.oom_control" \
    "/sys/fs/cgroup/blkio/$cgroup/blkio.throttle.write_bps_device"

say "Without its last limit it leaves again"
show lazycg update "$container" --memory -1 --memory-swap -1 --device-write-bps "$loop:0"
show lazycg status "$container"
