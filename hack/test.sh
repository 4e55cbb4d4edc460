#!/usr/bin/env bash
# test.sh [--no-vm] - runs every test: unit tests, those against the kernel's cgroups, the
# end-to-end suites, and one VM boot. Installs what is missing. The last line is the sum.
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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# How long one suite may take, seconds. A test that hangs is to fail, not the whole run.
limit=1500

# suite NAME FOLDER COMMAND...: runs it and adds up what it reports: "test result:" lines, as
# cargo's tests print them.
suite() {
    local name=$1 folder=$2 status=0 p f i reported=0
    shift 2
    echo "== $name"
    (cd "$folder" && timeout -k 30 $limit "$@" < /dev/null 2>&1) | tee "$work/output" || status=$?
    while read -r p f i; do
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + i))
        reported=$((reported + f))
    done < <(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$work/output")
    # it crashed, hung, or did not get as far as counting
    if [ $status != 0 ] && [ $reported = 0 ]; then
        echo "$name ended with $status"
        failed=$((failed + 1))
    fi
}

features=containerd-shim-lazycg/faults
echo "== build"
as_owner cargo build --quiet --workspace --features $features
as_owner cargo test --quiet --workspace --features $features --no-run --message-format=json > "$work/built"
# before a suite makes it as root, in a folder that the owner could not write to later
as_owner target/debug/image > /dev/null

# Test executables are started here and not by `cargo test`: as root, which cargo need not
# be, and each with its own time limit.
while IFS=$'\t' read -r manifest executable; do
    suite "${executable#"$repository"/}" "$(dirname "$manifest")" "$executable"
done < <(sed -nE '/"reason":"compiler-artifact"/ {
    /"test":true\},"features"/ s/.*"manifest_path":"([^"]*)".*"executable":"([^"]*)".*/\1\t\2/p }' "$work/built")
suite "documentation" . as_owner cargo test --quiet --workspace --features $features --doc

if [ $vm = 1 ]; then suite "VM: v1 with systemd" . hack/vm-test.sh
else skipped=$((skipped + 1)); fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
