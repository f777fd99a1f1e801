#!/usr/bin/env bash
# Makes a folder with a later release of Debian (sid) for tools that this system does not have: Swift, Dart, Rust for the web.
#
#   scripts/debian_root.sh FOLDER [PACKAGE...]     makes it where it is missing, and installs packages into it
#   scripts/debian_root.sh FOLDER -- COMMAND...    runs a command inside, with this repository at its own path
#
# It needs root, debootstrap, and a system that names a source of Debian's packages; it takes some minutes and 0.3 to 1.5 GB.
# Several programs may call it at once.
set -euo pipefail
folder=${1:?usage: scripts/debian_root.sh FOLDER [PACKAGE...] | FOLDER -- COMMAND...}
shift
repository=$(cd "$(dirname "$0")/.." && pwd -P)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)

if [[ ${1:-} == -- ]]; then
    shift
    # Mounts of its own, which end with the command. The current folder and the repository are seen where they are.
    here=$(pwd -P)
    # shellcheck disable=SC2016
    exec unshare --mount --propagation private bash -c '
        set -e
        root=$1 repository=$2 here=$3; shift 3
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        for seen in "$repository" "$here" ${DEBIAN_ROOT_BIND:-}; do
            mkdir -p "$root$seen" && mount --rbind "$seen" "$root$seen"
        done
        exec chroot "$root" /usr/bin/env --chdir="$here" PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 "$@"
    ' debian_root "$folder" "$repository" "$here" "$@"
fi

if ! command -v debootstrap >/dev/null; then
    echo "debian_root: debootstrap is not installed" >&2
    exit 1
fi
exec 9>"$folder.lock"
flock 9
if [[ ! -e $folder/.made ]]; then
    mirror=$(awk '$1 == "URIs:" { print $2; exit }' /etc/apt/sources.list.d/debian.sources)
    rm -rf "${folder:?}"/*
    debootstrap --variant=minbase sid "$folder" "$mirror" >&2
    # The network as this system reaches it.
    cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
    cp -a /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/" 2>/dev/null || true
    touch "$folder/.made"
fi
if (($#)); then
    missing=()
    for package in "$@"; do
        chroot "$folder" dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
    done
    if ((${#missing[@]})); then
        chroot "$folder" apt-get -o APT::Sandbox::User=root update -qq >&2
        chroot "$folder" env DEBIAN_FRONTEND=noninteractive apt-get -o APT::Sandbox::User=root install -y -qq \
            --no-install-recommends "${missing[@]}" >&2
    fi
    # Which versions, as this release moves.
    chroot "$folder" dpkg-query -W "$@"
fi
