#!/usr/bin/env bash
# check.sh [--lint] - what every change must pass: format, lints, and (without --lint) the
# unit tests, of which those that make cgroups fail without root. Needs the packages
# build-essential and protobuf-compiler.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$repository"
need_cargo

step() { echo "== $*"; as_owner "$@"; }

step cargo fmt --all --check
# a workspace of its own
step cargo fmt --manifest-path cgroups/fuzz/Cargo.toml --check
step cargo clippy --quiet --workspace --all-targets -- -D warnings
step cargo clippy --quiet --workspace --all-targets --features containerd-shim-lazycg/faults -- -D warnings
if command -v shellcheck > /dev/null; then
    scripts=$(grep --directories=skip -lE '^#!.*bash|^# shellcheck shell=bash' hack/* .ci/*)
    # shellcheck disable=SC2086  # names without spaces
    step shellcheck -x -S warning $scripts
fi
[ "${1:-}" != --lint ] || exit 0
# shellcheck source=hack/suites.sh
. hack/suites.sh
cargo_suites --workspace --lib --bins
sum
