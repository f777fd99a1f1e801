#!/usr/bin/env bash
# Makes Debian packages of libcactus: sdks/cpp/debian.sh FOLDER
#
#   libcactusN_VERSION_ARCH.deb        the library; N is the number of its ABI. It has a symbols file.
#   libcactus-dev_VERSION_ARCH.deb     headers, the static library, pkg-config, CMake
#
# It takes dpkg-dev, and checks the packages with lintian where that is installed. CACTUS_BUILT names a libcactus_ffi.a that is built
# already; CACTUS_PROFILE and CACTUS_FEATURES are those of scripts/install_c.sh. Files are the same in each run of one commit.
set -euo pipefail
[[ $# == 1 ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
skip() { echo "SKIPPED: $*" && exit 77; }
for tool in dpkg-deb dpkg-gensymbols dpkg-shlibdeps dpkg-architecture; do
    command -v $tool >/dev/null || skip "$tool is not installed (dpkg-dev)"
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
abi=$(sed -n 's/^#define CACTUS_ABI_VERSION \([0-9]*\)/\1/p' crates/ffi/include/cactus.h)
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer=${DEBFULLNAME:-The Cactus authors}" <"${DEBEMAIL:-cactus@localhost.localdomain}">"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH LC_ALL=C
# Nobody waits for what is only tested.
compression=(-Zxz)
[[ ${CACTUS_PROFILE:-dist} != dev ]] || compression=(-Zgzip -z1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

CACTUS_SONAME=libcactus.so.$abi scripts/install_c.sh "$work/prefix"
prefix=$work/prefix
runtime=$work/debian/libcactus$abi
dev=$work/debian/libcactus-dev

lib=$runtime/usr/lib/$triplet
mkdir -p "$lib" "$runtime/DEBIAN"
install -m 644 "$prefix/lib/libcactus.so" "$lib/libcactus.so.$version"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$lib/libcactus.so.$version"
ln -s "libcactus.so.$version" "$lib/libcactus.so.$abi"

lib=$dev/usr/lib/$triplet
mkdir -p "$lib/pkgconfig" "$lib/cmake/Cactus" "$dev/usr/include" "$dev/DEBIAN"
install -m 644 "$prefix"/include/* "$dev/usr/include/"
install -m 644 "$prefix/lib/libcactus.a" "$lib/"
strip --strip-debug --remove-section=.comment --enable-deterministic-archives "$lib/libcactus.a"
ln -s "libcactus.so.$version" "$lib/libcactus.so"
sed -e 's|^prefix=.*|prefix=/usr|' -e "s|^libdir=.*|libdir=\${prefix}/lib/$triplet|" "$prefix/lib/pkgconfig/cactus.pc" >"$lib/pkgconfig/cactus.pc"
sed -e 's|CMAKE_CURRENT_LIST_DIR}/../../..|CMAKE_CURRENT_LIST_DIR}/../../../..|' -e "s|_cactus_prefix}/lib/|_cactus_prefix}/lib/$triplet/|" \
    "$prefix/lib/cmake/Cactus/CactusConfig.cmake" >"$lib/cmake/Cactus/CactusConfig.cmake"
install -m 644 "$prefix/lib/cmake/Cactus/CactusConfigVersion.cmake" "$lib/cmake/Cactus/"

# What dpkg's tools want to know of the source.
cat >"$work/debian/control" <<END
Source: cactus
Maintainer: $maintainer

Package: libcactus$abi
Architecture: any

Package: libcactus-dev
Architecture: any
END
day=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
changelog="cactus ($version) unstable; urgency=medium

  * The commit's CHANGELOG.md says what is new.

 -- $maintainer  $day"
copyright="Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Cactus

Files: *
Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) the Cactus authors
License: MIT or Apache-2.0

License: MIT
$(sed -e 's/^$/./' -e 's/^/ /' LICENSE-MIT)

License: Apache-2.0
 On Debian systems, the text of this license is in /usr/share/common-licenses/Apache-2.0."
printf '%s\n' "$changelog" >"$work/debian/changelog"

cd "$work"
dpkg-gensymbols -q "-plibcactus$abi" "-Pdebian/libcactus$abi" "-v$version" "-O$runtime/DEBIAN/symbols"
echo "libcactus $abi libcactus$abi (>= $version)" >"$runtime/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$runtime/DEBIAN/triggers"
depends=$(dpkg-shlibdeps -O "$runtime"/usr/lib/*/libcactus.so.* 2>/dev/null | sed -n 's/^shlibs:Depends=//p')

# package NAME SECTION DEPENDS DESCRIPTION
package() {
    local tree=$work/debian/$1 documents=$work/debian/$1/usr/share/doc/$1
    mkdir -p "$documents"
    printf '%s\n' "$copyright" >"$documents/copyright"
    printf '%s\n' "$changelog" | gzip -9n >"$documents/changelog.gz"
    cat >"$tree/DEBIAN/control" <<END
Package: $1
Source: cactus
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -ks "$tree/usr" | cut -f1)
Depends: $3
Section: $2
Priority: optional
Multi-Arch: same
Description: $4
END
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$tree" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
    dpkg-deb --root-owner-group --build "${compression[@]}" "$tree" "$out/$1_${version}_$arch.deb"
}
package "libcactus$abi" libs "$depends" "AI models on this machine (library)
 Runs language models, models of speech and of vectors on this machine,
 for programs in C, C++ and other languages."
package libcactus-dev libdevel "libcactus$abi (= $version)" "AI models on this machine (development files)
 Headers of C and C++, the static library, and what pkg-config and CMake
 need, for programs that run language models, models of speech and of
 vectors on this machine."

# A symbol that goes would break programs, and the list of the repository says which there are.
listed=$(sort "$OLDPWD/crates/ffi/symbols.txt")
found=$(sed -n 's/^ \([a-z_0-9]*\)@.*/\1/p' "$runtime/DEBIAN/symbols" | sort)
[[ $listed == "$found" ]] || { echo "the symbols file differs from crates/ffi/symbols.txt" >&2 && exit 1; }
if command -v lintian >/dev/null; then
    # Not a package of Debian's, so no bug of Debian's asks for it; and Rust calls no functions that glibc fortifies.
    tags=initial-upload-closes-no-bugs,hardening-no-fortify-functions
    # A host that no mail reaches, unless DEBEMAIL says another.
    [[ -n ${DEBEMAIL:-} ]] || tags+=,bogus-mail-host,bogus-mail-host-in-debian-changelog
    lintian --allow-root --fail-on error,warning --suppress-tags "$tags" \
        "$out/libcactus${abi}_${version}_$arch.deb" "$out/libcactus-dev_${version}_$arch.deb"
else
    echo "SKIPPED: lintian is not installed"
fi
