# shellcheck shell=bash
# debian-suite.sh - for scripts of this folder to source: packages of another Debian suite,
# fetched and unpacked, not installed.
#
#   unpack_packages SUITE FOLDER PACKAGE...   unpack these packages of SUITE below FOLDER, whole
#                                             or not at all; FOLDER/packages lists their versions.
#                                             PACKAGE+ is one with all libraries that it needs
#
# apt's configuration and state of this host stay as they are: apt gets a list and folders of its
# own here, and the mirror, the proxy and the keys of the host.

# The signature of a suite is checked against these keys; those of a Debian know the next one's
# and those of unstable.
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg

# Where this host has its own suite from.
debian_mirror() {
    local own
    # shellcheck source=/dev/null
    own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # apt's variables
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 'Component: main' |
        awk -v suite="$own" '$1 == suite && !mirror { mirror = $2 }
            END { print mirror; exit !mirror }' ||
        { echo "apt's sources name no mirror of Debian's $own" >&2; return 1; }
}

# The libraries that a package depends on, and those that they depend on. Only from within
# unpack_packages.
libraries_of() {
    apt-cache -c "$work/apt/apt.conf" depends --recurse --important --no-suggests --no-breaks \
        --no-conflicts --no-replaces --no-enhances "$1" |
        sed -nE 's/^  (Pre)?Depends: (lib[^<>:]*|zlib1g)$/\2/p'
}

# In a process of its own, which removes what it has made also when it fails.
unpack_packages() (
    set -euo pipefail
    suite=$1 folder=$2
    shift 2
    mirror=$(debian_mirror)
    mkdir -p "${folder%/*}"
    work=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/apt/none" "$work/unpacked"
    echo "deb [signed-by=$debian_keys] $mirror $suite main" > "$work/apt/sources.list"
    : > "$work/apt/status"
    cat > "$work/apt/apt.conf" << END
Dir::State "$work/apt";
Dir::State::lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt";
Dir::Cache::archives "$work/apt/archives";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "$work/apt/none";
Dir::Etc::preferences "$work/apt/none/preferences";
Dir::Etc::preferencesparts "$work/apt/none";
// the folder may be where apt's own user cannot go
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
// what the host does after its own updates is not for these lists
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
// only the list of packages
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::Contents-deb;
END
    cd "$work/apt/archives"
    # an update that fails may be a warning only; without a list there is no package
    apt-get -qq -c "$work/apt/apt.conf" update -o APT::Update::Error-Mode=any >&2
    for package; do
        case $package in *+) libraries_of "${package%+}" ;; esac
        echo "${package%+}"
    done | sort -u > "$work/wanted"
    xargs -r apt-get -qq -c "$work/apt/apt.conf" download < "$work/wanted" >&2
    for package in *.deb; do
        dpkg-deb --show "$package" >> "$work/unpacked/packages"
        dpkg-deb --extract "$package" "$work/unpacked"
    done
    # two may do this at the same time: either will do
    rm -rf "$folder"
    mv -T "$work/unpacked" "$folder" || [ -s "$folder/packages" ]
)
