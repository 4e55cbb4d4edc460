#!/usr/bin/env bash
# hollow.sh [RPC...] - proves that no method of the task service can stop doing its work
# unnoticed: in its turn each of them answers an empty success and does nothing, and its test
# must fail. Needs root and what hack/test.sh installs; takes a few minutes.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$repository"
need_root
need_cargo

# RPC, suite of the package lazycg-tests, test. Tests that fail soon, not after a deadline.
table() {
    cat << 'TABLE'
State       task_api   a_created_container_waits_for_start
Create      task_api   a_created_container_waits_for_start
Start       task_api   a_created_container_waits_for_start
Delete      task_api   a_created_container_waits_for_start
Pids        metrics    the_processes_are_listed
Pause       lifecycle  pause_freezes_and_resume_goes_on
Resume      lifecycle  pause_freezes_and_resume_goes_on
Checkpoint  task_api   a_checkpoint_is_made_or_refused
Kill        task_api   a_created_container_can_be_killed_and_deleted
Exec        task_api   everyone_who_waits_gets_the_exit
ResizePty   stdio      a_container_has_a_terminal
CloseIO     stdio      closed_input_ends_a_reader
Update      task_api   a_created_container_can_be_limited
Wait        task_api   everyone_who_waits_gets_the_exit
Stats       metrics    figures_come_in_the_form_that_containerd_reads
Connect     task_api   both_versions_of_the_service_answer
Shutdown    task_api   shutdown_ends_the_shim_and_removes_its_socket
TABLE
}

features=containerd-shim-lazycg/faults
as_owner cargo build --quiet --workspace --features $features
as_owner target/debug/image > /dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2046  # names without spaces
as_owner cargo test --quiet --workspace --features $features --no-run --message-format=json \
    $(table | awk '{ print "--test=" $2 }' | sort -u) > "$work/built"

# The executable of a suite.
executable() {
    sed -nE "/\"reason\":\"compiler-artifact\"/ {
        /\"kind\":\[\"test\"\]/ s/.*\"name\":\"$1\",.*\"executable\":\"([^\"]*)\".*/\1/p
    }" "$work/built"
}

# Runs one test with RPC $1 hollow, and says how that ended: passed, failed, or what else.
run() {
    local program
    program=$(executable "$2")
    [ -n "$program" ] || { echo "there is no suite $2"; return; }
    (cd tests && LAZYCG_HOLLOW=$1 timeout -k 5 150 "$program" --exact "$3") \
        < /dev/null > "$work/output" 2>&1 || :
    case $(grep '^test result:' "$work/output") in
        *' 1 passed; 0 failed;'*) echo passed ;;
        *' 0 passed; 1 failed;'*) echo failed ;;
        *' 0 passed; 0 failed;'*) echo "there is no test $3 in suite $2" ;;
        *) echo "the test came to no end" ;;
    esac
}

# What the test that failed has said first.
reason() {
    sed -nE '/panicked at/ { s/.*panicked at ([^:]*:[0-9]+).*/\1/; h; n; H; n; H; n; H; x
        s/\n +(left|right): /, \1 /g; s/assertion `([^`]*)` failed/\1/
        s/\n(stack backtrace|note):.*//; s/\n/ /g; p; q }' \
        "$work/output" | cut -c1-110
}

survivors=0
declare -A sound
report() { printf '%-11s %-60s %s\n' "$@"; }
report RPC 'hollow, it fails' 'with'
while read -r rpc suite test; do
    case " $* " in '  ' | *" $rpc "*) ;; *) continue ;; esac
    # Only a test that passes otherwise says something when it fails.
    if [ -z "${sound[$suite/$test]-}" ]; then
        sound[$suite/$test]=$(run NoSuchMethod "$suite" "$test")
    fi
    outcome=${sound[$suite/$test]}
    if [ "$outcome" = passed ]; then
        outcome=$(run "$rpc" "$suite" "$test")
    else
        outcome="without a hollow method: $outcome"
    fi
    if [ "$outcome" = failed ]; then
        report "$rpc" "$suite $test" "$(reason)"
    else
        report "$rpc" "$suite $test" "NOT CAUGHT: $outcome"
        survivors=$((survivors + 1))
    fi
done < <(table)
echo "$survivors not caught"
[ $survivors = 0 ]
