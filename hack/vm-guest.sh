#!/bin/bash
# vm-guest.sh - what hack/vm-test.sh runs inside its VM: a v1 host with systemd.
#
# Prints one line per check, as the other suites do, and ends with 1 if one failed. RUNTIME
# names another runtime: with the stock one only what holds for both is checked.
set -uo pipefail

runtime=${RUNTIME:-io.containerd.lazycg.v1}
image=${IMAGE:?the name of the image in /root/image.tar}
late=1
[ "$runtime" = io.containerd.lazycg.v1 ] || late=0
passed=0 failed=0

# A job is a process group: what a check started can be ended with it.
set -m
patience=120

# check NAME COMMAND...: one check; its output is shown only when it fails. One that hangs
# fails too, instead of the whole run.
check() {
    local name=$1 status=0 job watch
    shift
    "$@" > /root/output 2>&1 &
    job=$!
    (sleep $patience; kill -KILL -- -$job) 2> /dev/null &
    watch=$!
    wait $job || status=$?
    kill -KILL -- -$watch; wait $watch
    if [ $status = 0 ]; then
        passed=$((passed + 1)); echo "test vm_v1::$name ... ok"
    else
        failed=$((failed + 1)); echo "test vm_v1::$name ... FAILED"
        echo "$* ended with $status:"; sed 's/^/    /' /root/output
    fi
} 2> /dev/null

# The host's mounts without their numbers, which a new mount of the same kind changes.
mounts() { cut -d' ' -f3- /proc/1/mountinfo | sort; }

# pid ID: the init process of a container.
pid() { ctr task ls | awk -v id="$1" '$1 == id { print $2 }'; }

# cgroup_of PID CONTROLLER: its path in that controller's hierarchy.
cgroup_of() {
    awk -F: -v want="$2" '{ n = split($2, c, ","); for (i = 1; i <= n; i++)
        if (c[i] == want) { sub(/^[^:]*:[^:]*:/, ""); print } }' "/proc/$1/cgroup"
}

# sits ID CONTROLLER=own|root...: where a container's init is.
sits() {
    local id=$1 p c want path wrong=0
    shift
    p=$(pid "$id"); [ -n "$p" ] || { echo "no task $id"; return 1; }
    for c in "$@"; do
        path=$(cgroup_of "$p" "${c%=*}")
        case ${c##*=} in own) want=/default/$id ;; *) want=/ ;; esac
        [ "$path" = "$want" ] || { echo "${c%=*}: in $path, not in $want"; wrong=1; }
    done
    return $wrong
}

# holds FILE VALUE: a cgroup file below /sys/fs/cgroup.
holds() {
    local value
    value=$(< "/sys/fs/cgroup/$1") && [ "$value" = "$2" ] && return
    echo "$1 holds '$value', not '$2'"; return 1
}

# same_place ID: an exec'd process is where the init is.
same_place() {
    local exec_id=e$RANDOM
    diff "/proc/$(pid "$1")/cgroup" <(ctr task exec --exec-id $exec_id "$1" cat /proc/self/cgroup)
}

# gone ID: no directory of that name in any hierarchy.
gone() { ! find /sys/fs/cgroup -depth -type d -name "$1" | grep .; }

# uses ID KIB: a process of the container has that much resident memory.
uses() {
    local p
    for p in $(< "/sys/fs/cgroup/devices/default/$1/cgroup.procs"); do
        awk -v least="$2" '/^VmRSS:/ && $2 >= least { found = 1 } END { exit !found }' "/proc/$p/status" && return
    done
    return 1
}

# says WORD COMMAND...: it fails, and the error has that word.
says() {
    local output
    if output=$("${@:2}" 2>&1); then echo "succeeded"; return 1; fi
    case $output in *"$1"*) ;; *) echo "$output"; return 1 ;; esac
}

at_least() { [ "$(< "/sys/fs/cgroup/$1")" -ge "$2" ] || { cat "/sys/fs/cgroup/$1"; return 1; }; }
status_is() { local s=0; "${@:2}" || s=$?; [ $s = "$1" ] || { echo "ended with $s"; return 1; }; }
task_state() { [ "$(ctr task ls | awk -v id="$1" '$1 == id { print $3 }')" = "$2" ]; }
co_mounted() { [ "$(findmnt -no FSTYPE "/sys/fs/cgroup/$1")" = cgroup ]; }
shared_root() { [ "$(findmnt -no PROPAGATION /)" = shared ]; }
no_mount_leaks() {  # besides the container's own root file system
    diff /root/mounts <(mounts) | grep '^[<>]' | grep -v ' /run/containerd/' && return 1
    return 0
}
run_box() { ctr run -d --runtime "$runtime" "$image" "$1" sleep 1000; }
end_box() { ctr task kill -s KILL "$1" && wait_for task_state "$1" STOPPED && ctr task delete "$1"; ctr container rm "$1"; }
mounts_as_before() { diff /root/mounts <(mounts); }
no_shims() { ! pgrep -fa containerd-shim; }
no_records() { ! find /run/lazycg -name '*.json' 2> /dev/null | grep .; }
wait_for() {
    local i
    for ((i = 0; i < 100; i++)); do "$@" && return; sleep 0.1; done
    echo "not within 10 s: $*"; return 1
}

check host_has_cpu_with_cpuacct co_mounted cpu,cpuacct
check host_has_net_cls_with_net_prio co_mounted net_cls,net_prio
check host_root_is_shared shared_root
check image_import ctr images import /root/image.tar
# the plugins of containerd mount nothing later, and the import mounts nothing for good
mounts > /root/mounts

check run run_box box
if [ $late = 1 ]; then
    check starts_where_planned sits box devices=own freezer=own name=systemd=own cpu=own \
        cpuacct=own memory=root blkio=root cpuset=root pids=root net_cls=root net_prio=root \
        perf_event=root
    check status_names_reasons bash -c 'lazycg status box | grep -E "fair" &&
        lazycg status box | grep -E "tracking"'
fi
check exec_is_where_init_is same_place box
check no_mount_on_the_host no_mount_leaks
check pause ctr task pause box
check paused task_state box PAUSED
check resume ctr task resume box
check resumed task_state box RUNNING

if [ $late = 1 ]; then
    check update lazycg update --memory 64m --pids-limit 50 --device-write-bps /dev/vda:1m box
    check joins_what_is_limited sits box memory=own pids=own blkio=own cpuset=root \
        net_cls=root net_prio=root cpu=own cpuacct=own devices=own freezer=own
    check memory_limit holds memory/default/box/memory.limit_in_bytes $((64 << 20))
    check pids_limit holds pids/default/box/pids.max 50
    check blkio_limit holds blkio/default/box/blkio.throttle.write_bps_device \
        "$(cat /sys/block/vda/dev) $((1 << 20))"
    check is_thawed holds freezer/default/box/freezer.state THAWED
    check exec_lands_in_the_late_cgroups same_place box
    check limit_kills status_is 137 ctr task exec --exec-id big box workload alloc 100m --exit
    # systemd looks at its units' cgroups again, and has no say in these
    check daemon_reload systemctl daemon-reload
    check reload_moves_nothing sits box memory=own pids=own blkio=own cpu=own name=systemd=own
    check update_lifts lazycg update --memory -1 box
    check leaves_what_is_not_limited sits box memory=root pids=own blkio=own
    # this kernel moves what is charged: what is in use must fit into the limit
    check use_memory ctr task exec --detach --exec-id use box workload alloc 100m
    check memory_is_in_use wait_for uses box 100000
    check too_small_a_limit_is_refused says memory.limit lazycg update --memory 64m box
    check nothing_has_moved sits box memory=root pids=own
    check no_memory_cgroup_is_left test ! -e /sys/fs/cgroup/memory/default/box
    check thawed_after_a_refusal holds freezer/default/box/freezer.state THAWED
    check a_limit_that_fits lazycg update --memory 256m box
    check memory_moves_along at_least memory/default/box/memory.usage_in_bytes $((100 << 20))
    check no_mount_after_updates no_mount_leaks
fi
check "kill" ctr task kill -s KILL box
check stopped wait_for task_state box STOPPED
check task_delete ctr task delete box
check container_delete ctr container rm box
check no_cgroup_is_left gone box

if [ $late = 1 ]; then
    mkdir -p /etc/lazycg; echo 'runtime = "crun"' > /etc/lazycg/config.toml
    check crun_run run_box cbox
    check crun_starts_where_planned sits cbox devices=own freezer=own name=systemd=own cpu=own \
        memory=root net_cls=root
    check crun_update lazycg update --memory 64m cbox
    check crun_joins sits cbox memory=own pids=root
    check crun_exec_lands_in_the_late_cgroup same_place cbox
    check crun_delete end_box cbox
    check crun_leaves_no_cgroup gone cbox
    check no_records_are_left no_records
fi
check no_shim_is_left wait_for no_shims
check mounts_are_as_before mounts_as_before

result=ok
[ $failed = 0 ] || { result=FAILED; journalctl -q -u containerd --no-pager | tail -n 40; }
echo "test result: $result. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
