#!/usr/bin/env bash
# test.sh [--no-vm] - runs every test: unit tests, those against the kernel's cgroups, the
# end-to-end suites with the host's containerd, those that a containerd could break with newer
# ones, and one VM boot. Installs what is missing. Ends with the table of parity and the sum.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$repository"

vm=1
case ${1:-} in
    '') ;;
    --no-vm) vm=0 ;;
    *) echo "usage: $0 [--no-vm]" >&2; exit 2 ;;
esac
need_root
hack/install-packages.sh build-essential protobuf-compiler \
    containerd runc crun busybox-static iproute2 procps util-linux e2fsprogs
need_cargo
# shellcheck source=hack/suites.sh
. hack/suites.sh

features=containerd-shim-lazycg/faults
echo "== build"
as_owner cargo build --quiet --workspace --features $features
# before a suite makes it as root, in a folder that the owner could not write to later
as_owner target/debug/image > /dev/null
# without it the suite `docker` fails, and says so
as_owner hack/docker-engine.sh || :
# without it nothing is restored, and the suites check the errors; they say so
as_owner hack/criu.sh || :

export LAZYCG_PARITY_ROWS=$suites_work/parity
cargo_suites --workspace --features $features

# Each newer containerd is fetched, and is a failure if it cannot be.
for version in 1.7 2.1; do
    if ! folder=$(as_owner hack/containerd-versions.sh $version); then
        missed "containerd $version could not be fetched"
        continue
    fi
    export LAZYCG_TEST_CONTAINERD=$folder
    suites_title="containerd $version: "
    cargo_suites --workspace --features $features \
        --test lifecycle --test exec --test update --test recovery --test 'parity_*'
done
unset LAZYCG_TEST_CONTAINERD suites_title

suite "documentation" . "${owner_prefix[@]}" cargo test --quiet --workspace --features $features --doc
if [ $vm = 1 ]; then suite "VM: v1 with systemd" . hack/vm-test.sh
else skipped=$((skipped + 1)); fi
echo "== parity with the stock shim, by containerd and OCI runtime"
hack/parity.sh "$LAZYCG_PARITY_ROWS"
sum
