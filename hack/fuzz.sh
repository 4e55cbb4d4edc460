#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET...] - runs the fuzz targets of cgroups/fuzz one after the other,
# each for SECONDS (60). Installs cargo-fuzz when it is missing. An input that fails is kept in
# cgroups/fuzz/artifacts.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$repository/cgroups/fuzz"
need_cargo

seconds=${1:-60}
case $seconds in
    *[!0-9]* | '') echo "usage: $0 [SECONDS] [TARGET...]" >&2; exit 2 ;;
esac
shift || :
[ $# != 0 ] || set -- mountinfo membership resources

command -v cargo-fuzz > /dev/null || as_owner cargo install --quiet --locked cargo-fuzz

for target in "$@"; do
    echo "== $target"
    as_owner mkdir -p "corpus/$target"
    options=(-max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1)
    [ ! -e "$target.dict" ] || options+=("-dict=$target.dict")
    # Sanitizers need a nightly compiler, and here they would find nothing more: this is safe
    # Rust, and its own checks are on.
    as_owner nice -n 19 cargo fuzz run --fuzz-dir . --sanitizer none --debug-assertions \
        "$target" "corpus/$target" "seeds/$target" -- "${options[@]}"
done
