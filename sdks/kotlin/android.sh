#!/usr/bin/env bash
# Packs the Kotlin SDK as a Maven repository: the jar for the JVM, the AAR for Android, and the metadata that joins them.
#
#   sdks/kotlin/android.sh OUT arm64-v8a=libcactus.so,libcactus_jni.so [x86_64=...] [armeabi-v7a=...] [linux-x86_64=...]
#   sdks/kotlin/android.sh --test OUT ...       takes libraries that are not of Android, to test the packing
#
# An ABI of Android goes into the AAR, and a desktop (linux-x86_64, linux-aarch64, macos-aarch64) into the jar. Each library is
# checked: its machine, pages of 16 KB, exported names, what it needs; its size is printed. ANDROID_JAR names the classes of Android to compile
# with; without it, stand-ins are taken. With the NDK the two libraries are made so:
#
#   cargo rustc -p cactus-ffi --lib --profile dist --target aarch64-linux-android --crate-type cdylib
#   $NDK/.../aarch64-linux-android24-clang -shared -O2 -fPIC -fvisibility=hidden -Wl,-z,max-page-size=16384 \
#       -I crates/ffi/include sdks/kotlin/src/native/cactus_jni.c -o libcactus_jni.so -ldl
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mode=()
if [ "${1:-}" = --test ]; then mode=(--test); shift; fi
[ "$#" -ge 2 ] || { sed -n '2,15p' "$0"; exit 2; }
mkdir -p "$1"
place="$(realpath "$1")"
shift
given=("$@")
set --
source "$HERE/build.sh" tests
version="$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)"
android="$OUT/android"
if [ -n "${ANDROID_JAR:-}" ]; then
    android="$OUT/android-real"
    rm -rf "$android"
    mapfile -t android_sources < <(sources "$HERE/src/androidMain")
    printf '%s\n' jvm.K2JVMCompiler -no-stdlib -no-reflect -cp "$STDLIB:$OUT/classes:$ANDROID_JAR" -jvm-target 1.8 -Xexplicit-api=strict -jvm-default=enable \
        -module-name cactus-engine-android "-Xfriend-paths=$OUT/classes" -d "$android" "${android_sources[@]}" > "$OUT/android-real.args"
    compiler="$KOTLIN_LIB/kotlin-compiler.jar:$KOTLIN_LIB/kotlin-reflect.jar:$KOTLIN_LIB/kotlin-script-runtime.jar:$KOTLIN_LIB/kotlin-daemon-client.jar:$STDLIB"
    "$JDK/bin/java" -Xmx1500m -cp "$compiler" "$HERE/tools/Compile.java" "$OUT/android-real.args"
else
    echo "SKIPPED: kotlin: the Android part was compiled against stand-ins; set ANDROID_JAR to compile it against Android"
fi
python3 "$HERE/tools/package.py" "${mode[@]}" --version "$version" --classes "$OUT/classes" --android "$android" --out "$place" "${given[@]}"
