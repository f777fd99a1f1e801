# shellcheck shell=bash
# Where Swift is, for the scripts beside this one, which source it. It sets `run`, what a command of Swift's toolchain is begun with.
#
# That is nothing where `swift` 6.2 or later is on the path. Else it is a folder with a later Debian, which scripts/debian_root.sh makes and other
# SDKs use, too: CACTUS_SID names it.
packages=(swiftlang swiftlang-dev libc6-dev libstdc++-14-dev gcc python3)
sid=${CACTUS_SID:-$HOME/.cache/cactus/sid}
scratch=$(dirname "$(mktemp -u)")
run=()

# Whether Swift is there; with `install` it may be installed.
have_swift() {
    if command -v swift >/dev/null && swift --version 2>/dev/null | grep -qE 'Swift version (6\.[2-9]|[7-9]|[1-9][0-9])'; then
        return 0
    fi
    [[ $(id -u) == 0 ]] || return 1
    if [[ ${1:-} == install && ! (-x $sid/usr/bin/swift-build && -x $sid/usr/bin/python3) ]]; then
        [[ -e $sid/.made ]] || command -v debootstrap >/dev/null || return 1
        echo "installing Swift into $sid (some 600 MB)" >&2
        timeout 1200 scripts/debian_root.sh "$sid" "${packages[@]}" >&2 || return 1
    fi
    [[ -x $sid/usr/bin/swift-build && -x $sid/usr/bin/python3 ]] || return 1
    # What scripts make and read is seen inside of it, too.
    export DEBIAN_ROOT_BIND="$scratch $prefix $build ${DEBIAN_ROOT_BIND:-}"
    run=(scripts/debian_root.sh "$sid" --)
}

# Builds with what every build needs.
swift_build() {
    # Debian's package names a library that it does not have, where Foundation and its tests come together. Nothing of it is used.
    mkdir -p "$build/empty"
    [[ -e $build/empty/lib_Testing_Foundation.a ]] || printf '!<arch>\n' >"$build/empty/lib_Testing_Foundation.a"
    "${run[@]}" env CACTUS_EXAMPLES=1 CACTUS_PREFIX="$prefix" PKG_CONFIG_PATH="$prefix/lib/pkgconfig" swift "$@" \
        -Xlinker "-L$build/empty"
}
