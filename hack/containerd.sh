# shellcheck shell=bash
# A containerd of one's own, for scripts: source this file.
#
#   start_containerd FOLDER   start one that keeps everything below FOLDER and finds shims and
#                             runtimes on PATH; sets CONTAINERD_ADDRESS, containerd_pid
#   remove_containers         end and delete every container of CONTAINERD_NAMESPACE
#   stop_containerd FOLDER    stop it, and its shims, and unmount everything below FOLDER

start_containerd() {
    local folder=$1 tries
    mkdir -p "$folder"
    export CONTAINERD_ADDRESS=$folder/c.sock
    cat > "$folder/config.toml" << EOF
version = 2
root = "$folder/root"
state = "$folder/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "$CONTAINERD_ADDRESS"
EOF
    containerd --config "$folder/config.toml" > "$folder/containerd.log" 2>&1 &
    containerd_pid=$!
    for ((tries = 0; tries < 300; tries++)); do
        if ctr version > /dev/null 2>&1; then return; fi
        if ! kill -0 "$containerd_pid" 2> /dev/null; then break; fi
        sleep 0.1
    done
    tail -n 20 "$folder/containerd.log" >&2
    echo "containerd does not answer at $CONTAINERD_ADDRESS" >&2
    return 1
}

# Deletes by force: this is the way out of a script that may have failed anywhere. ctr calls
# a task that it had to kill a failure; one that it could not delete makes it refuse to delete
# the container, which is shown.
remove_containers() {
    local id
    for id in $(ctr tasks list --quiet); do
        ctr tasks delete --force "$id" > /dev/null 2>&1 || :
    done
    for id in $(ctr containers list --quiet); do
        ctr containers delete "$id" > /dev/null || :
    done
}

stop_containerd() {
    local folder=$1 process target
    if [ -n "${containerd_pid-}" ]; then
        kill "$containerd_pid" 2> /dev/null && wait "$containerd_pid"
        containerd_pid=
    fi
    # Shims outlive containerd by design. Those of this one have its socket, which no other
    # has, on their command line.
    for process in /proc/[0-9]*; do
        if tr '\0' ' ' 2> /dev/null < "$process/cmdline" | grep -qF -- "-address $folder/c.sock "
        then kill -KILL "${process#/proc/}" 2> /dev/null || :; fi
    done
    # Deepest first: what is mounted in a mount hides it.
    while read -r target; do
        umount "$target" || umount --lazy "$target" || :
    done < <(awk -v folder="$folder/" 'index($5, folder) == 1 { print $5 }' \
        /proc/self/mountinfo | sort -r)
}
