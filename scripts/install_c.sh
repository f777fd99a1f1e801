#!/usr/bin/env bash
# Builds libcactus and installs it with its headers, a pkg-config file and a CMake package.
#
#   scripts/install_c.sh [PREFIX]     default /usr/local
#
# CACTUS_PROFILE=dev installs the development build, which tests use; CACTUS_PROFILE=small a smaller one (scripts/small.toml).
# CACTUS_FEATURES names the features to build with, as docs/reference/c-abi.md lists them: empty for text alone, without network code.
# CACTUS_TARGET installs for another target of Rust, with CC and STRIP for it. CACTUS_BUILT names a libcactus_ffi.a that is built already.
# CACTUS_SONAME is the name that programs find the library by (libcactus.so).
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${1:-/usr/local}
profile=${CACTUS_PROFILE:-dist}
built=${CACTUS_BUILT:-}
target=${CACTUS_TARGET:-}
cc=${CC:-cc}
strip=${STRIP:-strip}
if [[ -z $built ]]; then
    small=$([[ $profile != small ]] || echo scripts/small.toml)
    cargo ${small:+--config "$small"} rustc --locked --package cactus-ffi --lib --profile "$profile" --crate-type staticlib ${target:+--target "$target"} \
        --no-default-features --features "${CACTUS_FEATURES-default}"
    built=${CARGO_TARGET_DIR:-target}/${target:+$target/}$([[ $profile == dev ]] && echo debug || echo "$profile")/libcactus_ffi.a
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

mkdir -p "$prefix"/include "$prefix"/lib/pkgconfig "$prefix"/lib/cmake/Cactus
install -m 644 "$built" "$prefix/lib/libcactus.a"
# What only debuggers read is most of it.
[[ $profile == dev ]] || "$strip" -S "$prefix/lib/libcactus.a"
# Linked here and not by cargo, which would export names of dependencies too.
names=$(cat crates/ffi/symbols.txt)
if [[ ${target:-$(uname -s)} == *[Dd]arwin* ]]; then
    # shellcheck disable=SC2086
    "$cc" -dynamiclib -o "$prefix/lib/libcactus.dylib" $(printf -- '-Wl,-u,_%s ' $names) -Wl,-exported_symbol,'_cactus_*' \
        -Wl,-dead_strip -install_name @rpath/libcactus.dylib "$prefix/lib/libcactus.a" -framework Security \
        -framework CoreFoundation -framework SystemConfiguration -liconv
else
    # A small library has one copy of functions that are equal, and its relocations packed: Android reads them from API 23 on, glibc from 2.36 on, and
    # an older one says so. Rust's own linker does both.
    tight=()
    lld=$(dirname "$(find "$(rustc --print sysroot)" -path '*/gcc-ld/ld.lld' -print -quit 2>/dev/null)")
    if [[ $profile == small && $lld != . ]]; then
        tight=("-B$lld" -fuse-ld=lld -Wl,-O2,--icf=all)
        [[ $target == *android* ]] && tight+=(-Wl,--pack-dyn-relocs=android) || tight+=(-Wl,-z,pack-relative-relocs)
    fi
    # shellcheck disable=SC2086
    "$cc" -shared -o "$prefix/lib/libcactus.so" $(printf -- '-Wl,-u,%s ' $names) -Wl,--version-script=crates/ffi/exports.map \
        -Wl,--gc-sections -Wl,-soname,"${CACTUS_SONAME:-libcactus.so}" -Wl,-z,max-page-size=16384 -Wl,-z,relro,-z,now \
        "${tight[@]}" "$prefix/lib/libcactus.a" -lpthread -ldl -lm -lgcc_s -lc
    [[ $profile == dev ]] || "$strip" "$prefix/lib/libcactus.so"
fi
install -m 644 crates/ffi/include/cactus.h crates/ffi/include/cactus.hpp crates/ffi/include/cactus_tools.hpp "$prefix/include/"
sed "s/@VERSION@/$version/" crates/ffi/cactus.pc.in >"$prefix/lib/pkgconfig/cactus.pc"
for file in CactusConfig.cmake CactusConfigVersion.cmake; do
    sed "s/@VERSION@/$version/" "crates/ffi/cmake/$file.in" >"$prefix/lib/cmake/Cactus/$file"
done
echo "installed libcactus $version to $prefix" >&2
