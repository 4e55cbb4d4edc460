#!/usr/bin/env bash
# criu.sh - fetches the CRIU of Debian unstable for the suite `checkpoint`, and prints the folder
# that its `criu` is in. That of Debian 12 (3.17.1) knows nothing of the vDSO of newer kernels.
# Nothing is installed: `criu` is a script that starts it with the libraries that were fetched
# with it. What has been fetched is kept below target/criu/; remove that folder to have it anew.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
# shellcheck source=hack/debian-suite.sh
. "$repository/hack/debian-suite.sh"

folder=$repository/target/criu
if [ ! -s "$folder/packages" ]; then
    unpack_packages sid "$folder" criu+
fi
mkdir -p "$folder/bin"
cat > "$folder/bin/criu" << END
#!/bin/sh
# there need be no iptables here to lock the network with
export CRIU_CONFIG_FILE=$folder/criu.conf
exec $folder/usr/lib64/ld-linux-x86-64.so.2 \\
    --library-path $folder/usr/lib/x86_64-linux-gnu $folder/usr/sbin/criu "\$@"
END
chmod 755 "$folder/bin/criu"
echo "network-lock skip" > "$folder/criu.conf"
echo "$folder/bin"
