#!/usr/bin/env bash
# Builds the host of JSI on this machine, and scripts for it, into the folder build/: real JSI (that of React Native) on JavaScriptCore.
#
#   sdks/react-native/test/build.sh SCRIPT...     each a file of JavaScript that is bundled with the API
#
# It takes from npm what it needs (JSI's sources, JavaScriptCore's runtime for it, a bundler, Hermes' compiler), once, into
# CACTUS_TOOLS. Without the library JavaScriptCore (Debian: libjavascriptcoregtk-4.1-dev) it ends with 77 and says so.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
tools=${CACTUS_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/cactus/sdk-tools}
out=${CACTUS_JSI_BUILD:-$here/build}
skip() { echo "SKIPPED: $1"; exit 77; }

command -v pkg-config > /dev/null || skip "there is no pkg-config"
pkg-config --exists javascriptcoregtk-4.1 || skip "JSI needs JavaScriptCore: apt-get install libjavascriptcoregtk-4.1-dev"
command -v npm > /dev/null || skip "there is no npm"

# A package of npm, unpacked, without what it depends on.
unpacked() {
    local name=$1 version=$2 folder=$tools/npm/$1-$2
    if [ ! -e "$folder/package.json" ]; then
        local made
        mkdir -p "$tools/npm"
        made=$(mktemp -d "$tools/npm/unpacking.XXXXXX")
        (cd "$made" && npm pack --silent "$name@$version" > /dev/null && tar xzf ./*.tgz) || { rm -rf "$made"; skip "npm has no $name@$version now"; }
        mkdir -p "$(dirname "$folder")"
        rm -rf "$folder"
        mv "$made/package" "$folder"
        rm -rf "$made"
    fi
    echo "$folder"
}

native=$(unpacked react-native 0.88.1)/ReactCommon
jsc=$(unpacked @react-native-community/javascriptcore 0.2.0)/common
hermes=$(unpacked hermes-compiler 260318099.0.8)/hermesc/linux64-bin/hermesc
esbuild=$(unpacked @esbuild/linux-x64 0.28.1)/bin/esbuild

mkdir -p "$out"
core=$here/../node/native
include=${CACTUS_INCLUDE:-$here/../../crates/ffi/include}
flags=(-std=c++20 -O1 -pthread -fPIC -I"$here/cpp" -I"$core" -I"$include" -I"$native" -I"$native/jsi" -I"$native/callinvoker" -I"$jsc")
read -ra extra <<< "${CXXFLAGS:-}"
read -ra webkit <<< "$(pkg-config --cflags javascriptcoregtk-4.1)"
read -ra libraries <<< "$(pkg-config --libs javascriptcoregtk-4.1)"

# Ours are compiled with warnings, those of others without.
compile() {
    local source=$1 object
    object=$out/$(basename "$1" .cpp).o
    shift
    if [ ! -e "$object" ] || [ -n "$(find "$source" "$here/cpp" "$core" "$include" -type f -not -path "$here/cpp/core/*" -newer "$object" -print -quit)" ]; then
        "${CXX:-c++}" "${flags[@]}" "${extra[@]}" "${webkit[@]}" "$@" -c "$source" -o "$object"
    fi
    objects+=("$object")
}
objects=()
compile "$native/jsi/jsi/jsi.cpp" -w
compile "$jsc/JSCRuntime.cpp" -w
for source in raw by_hand call pool port library; do compile "$core/$source.cpp" -Wall -Wextra -Werror; done
compile "$here/cpp/jsi_native.cpp" -Wall -Wextra -Werror -isystem "$native/jsi"
compile "$here/test/host.cpp" -Wall -Wextra -Werror
"${CXX:-c++}" -pthread "${extra[@]}" "${objects[@]}" "${libraries[@]}" -ldl -o "$out/host"

# The package has a copy of the Node package's sources.
rm -rf "$here/src/api"
mkdir -p "$here/src/api"
cp "$here"/../node/src/*.ts "$here/src/api/"
rm "$here/src/api/node.ts"
for script in "$@"; do
    name=$(basename "$script" .js)
    "$esbuild" "$script" --bundle --format=iife --target=es2022 --log-level=warning \
        --alias:react-native="$here/test/shims/react-native.js" --alias:cactus-engine-react-native="$here/src/index.ts" --outfile="$out/$name.js"
    # What Hermes would not take, React Native could not run.
    "$hermes" -emit-binary -out "$out/$name.hbc" "$out/$name.js" 2> "$out/$name.hermes.log" || { cat "$out/$name.hermes.log"; exit 1; }
done
