#!/usr/bin/env bash
# Unpacks an emulator for ARM64 that knows SME2 (QEMU 11), from a later release of Debian than this one, without touching
# what is installed: scripts/newer-emulator.sh FOLDER. The program is then FOLDER/usr/bin/qemu-aarch64, without libraries.
#
# It asks the source of packages that this system names, with lists of its own. Elsewhere than on Debian it fails.
set -euo pipefail
folder=${1:?usage: scripts/newer-emulator.sh FOLDER}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$folder"
# The paragraph of the main archive, for another suite.
awk 'BEGIN { RS = ""; ORS = "\n\n" } /Suites:.*-updates/' /etc/apt/sources.list.d/debian.sources |
    sed 's/^Suites:.*/Suites: trixie-backports/' >"$work/newer.sources"
options=(-qq -o Dir::Etc::sourcelist="$work/newer.sources" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
(cd "$work" && apt-get "${options[@]}" download qemu-user)
dpkg --fsys-tarfile "$work"/qemu-user_*.deb | tar -x -C "$folder" ./usr/bin/qemu-aarch64
"$folder/usr/bin/qemu-aarch64" --version >/dev/null
