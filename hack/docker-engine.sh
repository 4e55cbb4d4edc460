#!/usr/bin/env bash
# docker-engine.sh - fetches the docker engine of Debian 13 for the suite `docker`, which finds
# it below target/docker-engine/. That of Debian 12 (20.10) does not take a runtime by its name
# in containerd. Nothing is installed. What has been fetched is kept; remove that folder to have
# it anew.
set -euo pipefail
# shellcheck source=hack/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
# shellcheck source=hack/debian-suite.sh
. "$repository/hack/debian-suite.sh"

folder=$repository/target/docker-engine
if [ ! -s "$folder/packages" ]; then
    unpack_packages trixie "$folder" docker.io docker-cli
fi
cat "$folder/packages"
