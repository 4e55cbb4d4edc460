# shellcheck shell=bash
# suites.sh - for scripts of this folder to source after toolchain.sh: runs test suites and
# counts what they report.
#
#   cargo_suites ARGUMENT...        build tests with cargo's arguments, and run each executable;
#                                   what suites_title says stands before their names
#   missed WHAT                     count what could not even be tried as a failure
#   suite NAME FOLDER COMMAND...    run one suite
#   sum                             print the sum; fails if a test failed

suites_work=$(mktemp -d)
trap 'rm -rf "$suites_work"' EXIT
passed=0 failed=0 skipped=0

# How long one suite may take, seconds. A test that hangs is to fail, not the whole run.
suite_limit=1500

# Adds up the "test result:" lines, as cargo's tests print them.
suite() {
    local name=$1 folder=$2 status=0 p f i reported=0
    shift 2
    echo "== $name"
    (cd "$folder" && timeout -k 30 $suite_limit "$@" < /dev/null 2>&1) | tee "$suites_work/output" || status=$?
    while read -r p f i; do
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + i))
        reported=$((reported + f))
    done < <(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' \
        "$suites_work/output")
    # it crashed, hung, or did not get as far as counting
    if [ $status != 0 ] && [ $reported = 0 ]; then
        missed "$name ended with $status"
    fi
}

missed() {
    echo "$1"
    failed=$((failed + 1))
}

# The executables are started here and not by `cargo test`: as root, which cargo need not be,
# and each with its own time limit.
cargo_suites() {
    local manifest executable
    as_owner cargo test --quiet "$@" --no-run --message-format=json > "$suites_work/built"
    while IFS=$'\t' read -r manifest executable; do
        suite "${suites_title:-}${executable#"$repository"/}" "$(dirname "$manifest")" "$executable"
    done < <(sed -nE '/"reason":"compiler-artifact"/ {
        /"test":true\},"features"/ s/.*"manifest_path":"([^"]*)".*"executable":"([^"]*)".*/\1\t\2/p
    }' "$suites_work/built" | sort)
}

sum() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}
