#!/usr/bin/env bash
# vm-test.sh - boots a Debian 12 VM with cgroup v1 and systemd and runs vm-guest.sh in it:
# co-mounted controllers and a shared /, which a machine without systemd does not have.
# Needs a debug build of the workspace (hack/test.sh makes it).
#
# RUNTIME=io.containerd.runc.v2 checks the VM and the script with the stock shim instead.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$repository"
need_root
hack/install-packages.sh qemu-system-x86 mmdebstrap e2fsprogs cpio busybox-static lz4 xz-utils \
    zstd binutils

# The guest's packages are downloaded through this machine's lists.
compgen -G '/var/lib/apt/lists/*_Packages*' > /dev/null || apt-get -qq update

read -r image archive < <(as_owner target/debug/image)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copies=()
for program in containerd-shim-lazycg-v1 lazycg; do
    # the emulated machine takes seconds to unpack what only a debugger reads
    strip -o "$work/$program" "target/debug/$program"
    copies+=(--copy "$work/$program:/usr/local/bin/$program")
done
status=0
hack/vm.sh --mode v1 --systemd --containerd --timeout 900 "${copies[@]}" \
    --copy "$archive:/root/image.tar" --copy hack/vm-guest.sh:/root/vm-guest.sh \
    --env "IMAGE=$image" --env "RUNTIME=${RUNTIME:-io.containerd.lazycg.v1}" \
    -- /root/vm-guest.sh || status=$?
exit $status
