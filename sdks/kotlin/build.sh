#!/usr/bin/env bash
# Builds the Kotlin SDK without Gradle, and what tests it, into $OUT (target/sdks/kotlin).
#
#   sdks/kotlin/build.sh           cactus-engine.jar, its sources, libcactus_jni.so
#   sdks/kotlin/build.sh tests     also the Android part, tests, examples and the runner of the conformance suite
#
# What has not changed is not built again.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$HERE/../.." && pwd)"
OUT="${CACTUS_KOTLIN_BUILD:-${CARGO_TARGET_DIR:-$ROOT/target}/sdks/kotlin}"
source "$HERE/tools.sh"
mkdir -p "$OUT"
cd "$HERE"

# Whether $1 is of what the rest of the arguments and files contain.
is_new() {
    local stamp="$OUT/$1.stamp" sum
    shift
    sum="$(printf '%s\n' "$KOTLIN_VERSION" "$@" | { cat; cat -- "$@"; } | sha256sum)"
    [ "$(cat "$stamp" 2> /dev/null || true)" = "$sum" ] && return 1
    echo "$sum" > "$stamp.next"
}
is_built() { mv "$OUT/$1.stamp.next" "$OUT/$1.stamp"; }

case "$(uname)" in
    Darwin) JNI="$OUT/libcactus_jni.dylib" JNI_MD=darwin JNI_FLAGS=(-dynamiclib) ;;
    *) JNI="$OUT/libcactus_jni.so" JNI_MD=linux JNI_FLAGS=(-shared -Wl,-z,max-page-size=16384 -Wl,-z,now -Wl,-z,relro) ;;
esac
HEADER="$ROOT/crates/ffi/include/cactus.h"

if is_new jni src/native/cactus_jni.c src/native/support.h "$HEADER" || [ ! -f "$JNI" ]; then
    "${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden "${JNI_FLAGS[@]}" -I "$(dirname "$HEADER")" \
        -I "$JDK/include" -I "$JDK/include/$JNI_MD" src/native/cactus_jni.c -o "$JNI" -ldl -lpthread
    is_built jni
fi

sources() { find "$@" -name '*.kt' | LC_ALL=C sort; }
mapfile -t common < <(sources src/commonMain)
mapfile -t jvm < <(sources src/jvmMain)
rounds=()

# Byte code of Java 8, and nothing of later Javas: Android has no more.
if is_new main "${common[@]}" "${jvm[@]}" consumer-rules.pro || [ ! -f "$OUT/cactus-engine.jar" ]; then
    rm -rf "$OUT/classes"
    printf '%s\n' jvm.K2JVMCompiler -no-stdlib -no-reflect -cp "$STDLIB" -language-version 2.2 -api-version 2.2 -jvm-target 1.8 -Xjdk-release=1.8 -Xmulti-platform \
        "-Xcommon-sources=$(IFS=,; echo "${common[*]}")" -Xexplicit-api=strict -jvm-default=enable -Werror -module-name cactus-engine \
        -d "$OUT/classes" "${common[@]}" "${jvm[@]}" > "$OUT/main.args"
    rounds+=("$OUT/main.args")
fi

tests() {
    # What knows no coroutines, whose library is here for the JVM alone, has to compile for JavaScript: it uses nothing of Java.
    mapfile -t plain < <(grep -L kotlinx.coroutines "${common[@]}" | grep -vE "/(Cactus|Documents|Index|Transcriber|Model|Library|Platform|Responder)\.kt$")
    if is_new plain "${plain[@]}"; then
        printf '%s\n' js.K2JSCompiler -libraries "$KOTLIN_LIB/kotlin-stdlib-js.klib" -nopack -Xmulti-platform \
            "-Xcommon-sources=$(IFS=,; echo "${plain[*]}")" -ir-output-dir "$OUT/js" -ir-output-name common "${plain[@]}" > "$OUT/plain.args"
        rounds+=("$OUT/plain.args")
    fi
    # Classes of Android are not here: what the SDK uses of them has stand-ins, which are in no package.
    mapfile -t android < <(sources src/androidMain)
    mapfile -t standins < <(find tests/standins -name '*.java' | LC_ALL=C sort)
    if is_new android "${common[@]}" "${jvm[@]}" "${android[@]}" "${standins[@]}" || [ ! -d "$OUT/android" ]; then
        rm -rf "$OUT/android" "$OUT/standins"
        "$JDK/bin/javac" --release 8 -Xlint:-options -d "$OUT/standins" "${standins[@]}"
        printf '%s\n' jvm.K2JVMCompiler -no-stdlib -no-reflect -cp "$STDLIB:$OUT/classes:$OUT/standins" -jvm-target 1.8 -Xjdk-release=1.8 \
            -Xexplicit-api=strict -jvm-default=enable -Werror -module-name cactus-engine-android "-Xfriend-paths=$OUT/classes" \
            -d "$OUT/android" "${android[@]}" > "$OUT/android.args"
        rounds+=("$OUT/android.args")
    fi
    mapfile -t tested < <(sources tests examples conformance)
    mapfile -t java < <(find examples -name '*.java' | LC_ALL=C sort)
    if is_new tests "${common[@]}" "${jvm[@]}" "${android[@]}" "${tested[@]}" "${java[@]}" || [ ! -d "$OUT/tests" ]; then
        rm -rf "$OUT/tests"
        local libraries="$STDLIB:$OUT/classes:$OUT/android:$OUT/standins:$KOTLIN_LIB/kotlin-test.jar:$KOTLIN_LIB/kotlin-test-junit5.jar:$JUNIT"
        [ -n "$JUNIT" ] || mapfile -t tested < <(sources examples conformance tests/Overhead.kt)
        printf '%s\n' jvm.K2JVMCompiler -no-stdlib -no-reflect -cp "$libraries" -jvm-target 11 -module-name cactus-engine-tests \
            "-Xfriend-paths=$OUT/classes,$OUT/android" -d "$OUT/tests" "${tested[@]}" "${java[@]}" > "$OUT/tests.args"
        rounds+=("$OUT/tests.args")
    fi
}
[ "${1:-}" != tests ] || tests

if [ "${#rounds[@]}" -gt 0 ]; then
    compiler="$KOTLIN_LIB/kotlin-compiler.jar:$KOTLIN_LIB/kotlin-reflect.jar:$KOTLIN_LIB/kotlin-script-runtime.jar:$KOTLIN_LIB/kotlin-daemon-client.jar:$STDLIB"
    "$JDK/bin/java" -Xmx1500m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$compiler" tools/Compile.java "${rounds[@]}"
fi

# Archives with fixed times are the same in every build.
archive() {
    local file="$1"
    shift
    rm -f "$file"
    "$JDK/bin/jar" --create --file "$file" --date=2020-01-01T00:00:00Z "$@"
}
for each in "${rounds[@]}"; do
    case "$each" in
        */main.args)
            mkdir -p "$OUT/classes/META-INF/com.android.tools/r8"
            cp consumer-rules.pro "$OUT/classes/META-INF/com.android.tools/r8/cactus-engine.pro"
            archive "$OUT/cactus-engine.jar" -C "$OUT/classes" .
            archive "$OUT/cactus-engine-sources.jar" -C src/commonMain/kotlin . -C src/jvmMain/kotlin .
            is_built main
            ;;
        */android.args) is_built android ;;
        */plain.args) is_built plain ;;
        */tests.args)
            if [ "${#java[@]}" -gt 0 ]; then
                "$JDK/bin/javac" -Xlint:all,-options,-processing,-classfile --release 11 -cp "$STDLIB:$OUT/classes:$OUT/tests" -d "$OUT/tests" "${java[@]}"
            fi
            is_built tests
            ;;
    esac
done
