#!/usr/bin/env bash
# vm.sh - run one command in a throw-away Debian 12 VM with a chosen cgroup layout.
#
#   vm.sh [OPTIONS] [--] COMMAND [ARG...]      run COMMAND in a fresh VM
#   vm.sh --build-only                         only fill the cache
#
# Options:
#   --mode v2|v1|hybrid  cgroup layout (default v2)
#   --systemd            systemd is PID 1 and the command runs in vm-run.service;
#                        without it a small script is PID 1 and mounts the cgroups
#   --containerd         start containerd and wait for it before COMMAND
#   --copy HOST:GUEST    put a host file or directory at an absolute guest path
#   --fetch GUEST:HOST   copy a guest file back after COMMAND (whatever its status)
#   --env NAME=VALUE     environment variable for COMMAND
#   --disk SIZE          add an ext4 disk, mounted at /scratch (e.g. 512M)
#   --sched NAME         I/O scheduler for every writable disk (e.g. bfq)
#   --cache MODE         QEMU cache mode of /scratch (default unsafe; writeback
#                        makes a guest flush a host fsync)
#   --mem MIB  --smp N   size of the VM (defaults 1024 and 2)
#   --timeout SECONDS    give up after that long (default 300)
#   --accel NAME         QEMU accelerator (default tcg; see below)
#   --append ARGS        more kernel arguments
#   --verbose            show the kernel/systemd console on stderr
#
# Exit status: COMMAND's own (128+N if signal N killed it); 124 on --timeout; 125 if
# the VM did not get as far as reporting a status (the console's end goes to stderr);
# 2 for wrong usage.  COMMAND's stdout and stderr both come out on stdout.
#
# Environment: VM_CACHE (default ~/.cache/lazycg-vm), VM_SUITE (bookworm), VM_MIRROR,
#   VM_KERNEL (package, default linux-image-cloud-amd64), VM_PACKAGES (extra guest
#   packages, comma-separated), VM_TMP (folder for per-run files, default TMPDIR or /tmp).
#
# Needs root (mmdebstrap --mode=root) and, from Debian alone:
#   apt-get install -y qemu-system-x86 mmdebstrap e2fsprogs cpio busybox-static lz4 \
#       xz-utils zstd util-linux
#
# How it works: the kernel package is unpacked, not installed, and its image is
# decompressed, so that QEMU starts it through its PVH entry: that skips the boot
# loader and, under TCG, seconds of emulated decompression.  A 1 MB initramfs loads
# virtio_blk, mounts the cached root image (opened with snapshot=on, so it is never
# changed and several VMs can share it), unpacks the "payload" disk, a plain tar with
# the command and the copied files, over it, and switches to systemd or to /vm/init.
# The command writes to the second serial port, which is QEMU's stdout.  At the end
# the guest writes a tar with the status and the fetched files to the "result" disk
# and powers off through sysrq.
#
# TCG is the default because it works everywhere.  /dev/kvm alone proves nothing: a
# PVM host opens it and creates VMs, but runs a stock kernel only by emulating each
# instruction, far slower than TCG.
set -euo pipefail

die() { echo "vm.sh: $*" >&2; exit 125; }
usage() { echo "vm.sh: $*" >&2; exit 2; }

# ---------------------------------------------------------------- options
mode=v2 systemd=0 containerd=0 verbose=0 build_only=0
mem=1024 smp=2 timeout=300 accel=tcg disk='' sched='' cache=unsafe append=''
copies=() fetches=() envs=()
while [ $# -gt 0 ]; do
    case $1 in
        --mode|--copy|--fetch|--env|--disk|--sched|--cache|--mem|--smp|--timeout|--accel|--append)
            [ $# -ge 2 ] || usage "$1 needs a value" ;;
    esac
    case $1 in
        --mode)       mode=$2; shift 2 ;;
        --systemd)    systemd=1; shift ;;
        --containerd) containerd=1; shift ;;
        --copy)       copies+=("$2"); shift 2 ;;
        --fetch)      fetches+=("$2"); shift 2 ;;
        --env)        envs+=("$2"); shift 2 ;;
        --disk)       disk=$2; shift 2 ;;
        --sched)      sched=$2; shift 2 ;;
        --cache)      cache=$2; shift 2 ;;
        --mem)        mem=$2; shift 2 ;;
        --smp)        smp=$2; shift 2 ;;
        --timeout)    timeout=$2; shift 2 ;;
        --accel)      accel=$2; shift 2 ;;
        --append)     append=$2; shift 2 ;;
        --verbose)    verbose=1; shift ;;
        --build-only) build_only=1; shift ;;
        -h|--help)    awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
        --)           shift; break ;;
        -*)           usage "unknown option $1" ;;
        *)            break ;;
    esac
done
case $mode in v1|v2|hybrid) ;; *) usage "--mode must be v2, v1 or hybrid" ;; esac
[ $build_only = 1 ] || [ $# -gt 0 ] || usage "no command (try --help)"

suite=${VM_SUITE:-bookworm}
# the archive that this machine's own apt uses for the suite
mirror=${VM_MIRROR:-$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
    awk -v suite="$suite" '$1 == suite { print $2; exit }')}
[ -n "$mirror" ] || usage "no archive for $suite in apt's sources: set VM_MIRROR"
kernel_pkg=${VM_KERNEL:-linux-image-cloud-amd64}
# shellcheck disable=SC2100  # a list of names
packages=systemd-sysv,dbus,udev,kmod,mount,util-linux,procps,iproute2,e2fsprogs,tar,gzip
packages=$packages,busybox-static,containerd,runc,crun${VM_PACKAGES:+,$VM_PACKAGES}

# ---------------------------------------------------------------- cached parts
# A little-endian unsigned number of $3 bytes at offset $2 of file $1.
peek() { od -An -v -tu"$3" -j$(($2)) -N"$3" "$1" | tr -d ' '; }

# Take the ELF image out of bzImage $1 (Documentation/x86/boot.rst: the header tells
# where the payload is; its last 4 bytes are the unpacked size, not compressed data).
unpack_kernel() {
    local sects off len magic
    sects=$(peek "$1" 0x1f1 1) off=$(peek "$1" 0x248 4) len=$(peek "$1" 0x24c 4)
    off=$(((sects + 1) * 512 + off))
    magic=$(od -An -v -tx1 -j$off -N4 "$1" | tr -d ' ')
    case $magic in
        02214c18) set -- "$1" "$2" lz4 -dc ;;
        28b52ffd) set -- "$1" "$2" zstd -dcq ;;
        fd377a58) set -- "$1" "$2" xz -dcq --single-stream ;;
        1f8b*)    set -- "$1" "$2" gzip -dcq ;;
        *)        return 1 ;;
    esac
    # dd with a count in bytes: 'tail | head' would die of SIGPIPE under pipefail
    dd if="$1" bs=64K iflag=skip_bytes,count_bytes skip=$off count=$((len - 4)) \
        status=none | "${@:3}" > "$2"
}

# The module files that module $1 needs, dependencies first, itself last.
module_files() {
    awk -v want="/$1.ko:" 'index("/" $0, want) {
        sub(":", ""); for (i = NF; i > 0; i--) print $i }' "$2/modules.dep"
}

# Fill directory $1 with vmlinux, initrd.gz and root.img.
build() {
    local out=$1 work pkg kver mods m f
    # the unpacked tree is some 400 MB: build in memory where there is room
    work=$(mktemp -d "$(roomy_tmp)/vm-build.XXXXXX")
    # shellcheck disable=SC2064  # the value is wanted now
    trap "rm -rf '$work'" EXIT
    for f in qemu-system-x86_64 mmdebstrap mkfs.ext4 cpio lz4 xz zstd; do
        command -v "$f" > /dev/null || die "$f is missing: see the package list in $0"
    done
    [ "$(id -u)" = 0 ] || die "building the root image needs root"

    echo "vm.sh: building kernel and root image in $out" >&2
    # linux-image-cloud-amd64 is an empty package that depends on the real one.
    pkg=$(apt-cache depends "$kernel_pkg" | awk '/Depends: linux-image-/ { print $2; exit }')
    pkg=${pkg:-$kernel_pkg}
    (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$pkg") \
        || die "cannot download $pkg (has 'apt-get update' been run?)"
    dpkg -x "$work"/linux-image-*.deb "$work/kernel"
    kver=$(ls "$work/kernel/lib/modules")
    unpack_kernel "$work/kernel/boot/vmlinuz-$kver" "$out/vmlinux" \
        || cp "$work/kernel/boot/vmlinuz-$kver" "$out/vmlinux"

    mmdebstrap --quiet --variant=essential --mode=root --include="$packages" \
        --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$suite" "$work/root" "$mirror" > "$work/mmdebstrap.log" 2>&1 \
        || { tail -n 20 "$work/mmdebstrap.log" >&2; die "mmdebstrap failed"; }
    mkdir -p "$work/root/lib/modules" "$work/root/vm" "$work/root/scratch"
    mv "$work/kernel/lib/modules/$kver" "$work/root/lib/modules/"
    chroot "$work/root" depmod "$kver"
    # A machine ID spares systemd its first-boot work; nothing else is to start at boot.
    echo 0123456789abcdef0123456789abcdef > "$work/root/etc/machine-id"
    echo vm > "$work/root/etc/hostname"
    echo '127.0.0.1 localhost vm' > "$work/root/etc/hosts"
    mkdir -p "$work/root/etc/systemd/system"
    for m in systemd-journal-flush systemd-random-seed systemd-update-utmp \
             systemd-udev-trigger systemd-pstore e2scrub_reap; do
        ln -sf /dev/null "$work/root/etc/systemd/system/$m.service"
    done

    # initramfs: busybox, the modules up to virtio_blk and ext4, and /init
    mkdir -p "$work/ird/bin" "$work/ird/mod" "$work/ird/dev" "$work/ird/proc" \
             "$work/ird/sys" "$work/ird/new"
    cp "$work/root/bin/busybox" "$work/ird/bin/busybox"
    mods=$work/root/lib/modules/$kver
    : > "$work/ird/mod/order"
    for m in virtio_pci virtio_blk crc32c_generic ext4; do
        # a built-in one (the last two in the cloud kernel) has no file: nothing is printed
        for f in $(module_files "$m" "$mods"); do
            cp "$mods/$f" "$work/ird/mod/"
            grep -qxF "${f##*/}" "$work/ird/mod/order" || echo "${f##*/}" >> "$work/ird/mod/order"
        done
    done
    cat > "$work/ird/init" <<'EOF'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
while read m; do $b insmod /mod/$m || echo "vm: cannot load $m"; done < /mod/order
disk() { for d in /sys/block/vd*; do            # the device with virtio serial $1
    [ "$($b cat $d/serial)" = "$1" ] && echo /dev/${d##*/}; done; }
stop() { echo "vm: $*"; $b poweroff -f; $b sleep 60; }
$b mount -t ext4 -o rw,noatime "$(disk root)" /new || stop "no root disk"
$b tar -x -f "$(disk payload)" -C /new || stop "no payload"
for n in result scratch; do d=$(disk $n); [ -z "$d" ] || echo $n=$d; done > /new/vm/disks
$b mount --move /dev /new/dev; $b mount --move /proc /new/proc; $b mount --move /sys /new/sys
exec $b switch_root /new "$($b cat /new/vm/pid1)" || stop "switch_root failed"
EOF
    chmod 755 "$work/ird/init"
    (cd "$work/ird" && find . | cpio -o -H newc --quiet | gzip -1) > "$out/initrd.gz"

    # 2 GiB, mostly unwritten: the file takes only what the tree needs
    truncate -s 2G "$out/root.img"
    mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=1,nodiscard -m 0 \
        -d "$work/root" "$out/root.img"
    rm -rf "$work"
    trap - EXIT
}

# /dev/shm if it has 2 GiB to spare, else the folder for temporary files.
roomy_tmp() {
    local free
    free=$(df -Pk /dev/shm 2> /dev/null | awk 'NR == 2 { print $4 }')
    if [ "${free:-0}" -gt 2097152 ] && [ "$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)" -gt 3145728 ]
    then echo /dev/shm; else echo "${VM_TMP:-${TMPDIR:-/tmp}}"; fi
}

# One folder for each recipe: another package list or another build() is another key.
recipe="$suite $mirror $kernel_pkg $packages $(declare -f build unpack_kernel module_files)"
key=$(printf '%s' "$recipe" | sha256sum | cut -c1-12)
base=${VM_CACHE:-${HOME:-/root}/.cache/lazycg-vm}
img=$base/$key
mkdir -p "$base"
if [ ! -e "$img/done" ]; then
    exec 9> "$base/lock"
    flock 9                             # another run may be building it just now
    if [ ! -e "$img/done" ]; then
        rm -rf "$img"; mkdir "$img"
        build "$img" 9>&-
        touch "$img/done"
    fi
    exec 9>&-
fi
[ $build_only = 0 ] || exit 0

# ---------------------------------------------------------------- this run's payload
run=$(mktemp -d "${VM_TMP:-${TMPDIR:-/tmp}}/vm-run.XXXXXX")
vm=''
# Only ever stop the QEMU started here: timeout(1) passes the signal on to it.
cleanup() {
    if [ -n "$vm" ] && kill -TERM "$vm" 2> /dev/null; then wait "$vm" || :; fi
    rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

p=$run/payload
mkdir -p "$p/vm"
# An extracted directory entry would change the guest's: so only files are put in the
# tar by name, at the end, except for directories that were asked for.
names=()
put() { names+=("$1"); }
for c in ${copies[@]+"${copies[@]}"}; do
    src=${c%:*} dst=${c##*:}
    [ -e "$src" ] || usage "--copy: $src does not exist"
    case $dst in /?*) ;; *) usage "--copy: the guest path must be absolute: $c" ;; esac
    mkdir -p "$p$(dirname "$dst")"
    cp -aL "$src" "$p$dst"
    put ".$dst"
done

if [ $systemd = 1 ]; then echo /lib/systemd/systemd; else echo /vm/init; fi > "$p/vm/pid1"
{
    printf 'mode=%q systemd=%q containerd=%q sched=%q\n' "$mode" "$systemd" "$containerd" "$sched"
    for e in ${envs[@]+"${envs[@]}"}; do printf 'export %q\n' "$e"; done
    printf 'command=('; printf '%q ' "$@"; printf ')\n'
    printf 'fetch=('; for f in ${fetches[@]+"${fetches[@]}"}; do printf '%q ' "${f%:*}"; done; printf ')\n'
} > "$p/vm/config"

# PID 1 without systemd.
cat > "$p/vm/init" <<'EOF'
#!/bin/bash
# Mounts what systemd would, then runs the command; bash reaps orphans meanwhile.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
. /vm/config
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr
mount -t tmpfs -o mode=755 run /run; mkdir -m 1777 /run/lock
mount -t tmpfs tmp /tmp; chmod 1777 /tmp
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm; chmod 1777 /dev/shm
mount -t mqueue mqueue /dev/mqueue 2> /dev/null
c=/sys/fs/cgroup
if [ "$mode" = v2 ]; then
    mount -t cgroup2 -o nsdelegate cgroup2 $c
else
    mount -t tmpfs -o mode=755 cgroup $c
    # the same hierarchies as systemd's, those that the kernel has
    have=$(< /proc/cgroups)
    for h in cpuset cpu,cpuacct memory devices freezer net_cls,net_prio blkio perf_event \
             hugetlb pids rdma misc; do
        case $have in *$'\n'${h%%,*}$'\t'*) ;; *) continue ;; esac
        mkdir -p $c/$h; mount -t cgroup -o $h cgroup $c/$h
        case $h in *,*) ln -s $h $c/${h%,*}; ln -s $h $c/${h#*,} ;; esac
    done
    mkdir $c/systemd; mount -t cgroup -o none,name=systemd,xattr cgroup $c/systemd
    [ "$mode" = v1 ] || { mkdir $c/unified; mount -t cgroup2 cgroup2 $c/unified; }
fi
hostname vm
ip link set lo up
exec /vm/run
EOF

# Runs the command in both cases, reports, and powers off.
cat > "$p/vm/run" <<'EOF'
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
. /vm/config; . /vm/disks
cd /root
stty -F /dev/ttyS1 raw -echo
exec < /dev/null > /dev/ttyS1 2>&1
echo 3 > /proc/sys/kernel/printk
[ -z "$sched" ] || modprobe "$sched" 2> /dev/null || modprobe "$sched-iosched" 2> /dev/null
for q in /sys/block/vd*/queue/scheduler; do
    [ -z "$sched" ] || [ "$(cat ${q%/queue*}/ro)" = 1 ] || echo "$sched" > $q
done
[ -z "$scratch" ] || { mkdir -p /scratch; mount -t ext4 -o noatime "$scratch" /scratch; }
if [ "$containerd" = 1 ]; then
    modprobe overlay
    if [ "$systemd" = 1 ]; then systemctl start containerd
    else
        # a cgroup of its own, as its unit has
        for d in /sys/fs/cgroup /sys/fs/cgroup/{memory,pids,cpu,blkio,systemd}; do
            [ -e $d/cgroup.procs ] && mkdir -p $d/containerd && dirs="$dirs $d/containerd"
        done
        (for d in $dirs; do echo $BASHPID > $d/cgroup.procs; done
         exec containerd > /run/containerd.log 2>&1) &
    fi
    # a Go program takes half a second to start under TCG: ask it only once
    for i in {1..600}; do [ -S /run/containerd/containerd.sock ] && break; sleep 0.1; done
    ctr version > /dev/null || { echo "vm: containerd did not start"; cat /run/containerd.log; }
fi
(exec "${command[@]}")
status=$?
mkdir -p /run/vm; echo $status > /run/vm/status
files=()
for f in "${fetch[@]}"; do [ -e "$f" ] && files+=("${f#/}"); done
[ ${#files[@]} = 0 ] || files=(-C / "${files[@]}")
# the status comes first, so that it is there even if the files do not fit
tar -c -h -f "$result" -C /run/vm status "${files[@]}" || echo "vm: could not save every result"
sync "$result"
stty -F /dev/ttyS1 > /dev/null; sleep 0.1      # let the serial port drain
echo o > /proc/sysrq-trigger
sleep 60
EOF
mkdir -p "$p/etc/systemd/system"
cat > "$p/etc/systemd/system/vm-run.service" <<'EOF'
[Unit]
Description=The command
Requires=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/vm/run
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576
TimeoutStartSec=infinity
EOF
chmod 755 "$p/vm/init" "$p/vm/run"
for f in pid1 config init run; do put "./vm/$f"; done
put ./etc/systemd/system/vm-run.service
# GNU tar pads to 10 KiB, a multiple of the disk's 512-byte sectors
tar -c --owner=0 --group=0 -f "$run/payload.tar" -C "$p" "${names[@]}"
truncate -s 1G "$run/result.raw"                # sparse

# ---------------------------------------------------------------- run it
args="console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr no5lvl audit=0"
args="$args apparmor=0 tsc=reliable no_timer_check random.trust_cpu=on rdinit=/init"
case $mode in
    v2)     args="$args cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1" ;;
    v1)     args="$args systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1" ;;
    hybrid) args="$args systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=0" ;;
esac
[ $systemd = 0 ] || args="$args systemd.unit=vm-run.service systemd.show_status=1"
# shellcheck disable=SC2054  # the commas are QEMU's
case $accel in
    tcg) qargs=(-accel tcg,thread=multi -cpu max,la57=off) ;;
    *)   qargs=(-accel "$accel" -cpu host) ;;
esac
drive() {   # NAME FILE FORMAT-AND-OPTIONS
    qargs+=(-drive "if=none,id=$1,file=$2,$3" -device "virtio-blk-pci,drive=$1,serial=$1")
}
drive root "$img/root.img" format=raw,snapshot=on,cache=unsafe
drive payload "$run/payload.tar" format=raw,readonly=on
drive result "$run/result.raw" format=raw,cache=unsafe
if [ -n "$disk" ]; then
    truncate -s "$disk" "$run/scratch.raw"
    mkfs.ext4 -q -F -E nodiscard "$run/scratch.raw"
    drive scratch "$run/scratch.raw" "format=raw,cache=$cache"
fi
: > "$run/console"
# snapshot=on keeps its overlay in TMPDIR
TMPDIR=$run timeout -k 5 "$timeout" \
    qemu-system-x86_64 -machine q35 -smp "$smp" -m "$mem" -nodefaults -no-user-config \
    -display none -no-reboot -kernel "$img/vmlinux" -initrd "$img/initrd.gz" \
    -append "$args $append" "${qargs[@]}" \
    -serial "file:$run/console" -serial stdio < /dev/null &
vm=$!
[ $verbose = 0 ] || tail -f --pid="$vm" "$run/console" >&2 &
qstatus=0
wait "$vm" || qstatus=$?
vm=''
wait                                            # for tail

console_end() { echo "vm.sh: $1; the console's end:" >&2; tail -n 25 "$run/console" >&2; }
if [ $qstatus = 124 ] || [ $qstatus = 137 ]; then
    console_end "timed out after $timeout s"
    exit 124
fi
mkdir "$run/result"
tar -x -f "$run/result.raw" -C "$run/result" 2> /dev/null || :
if [ ! -s "$run/result/status" ]; then
    console_end "the VM reported no status"
    exit 125
fi
for f in ${fetches[@]+"${fetches[@]}"}; do
    src=$run/result/${f%:*}
    if [ -e "$src" ]; then cp -a "$src" "${f##*:}"; else echo "vm.sh: --fetch: the guest has no ${f%:*}" >&2; fi
done
exit "$(cat "$run/result/status")"
