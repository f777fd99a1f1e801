#!/usr/bin/env bash
# Builds the Kotlin SDK and tests it: unit tests on each JDK that is here (with -Xcheck:jni), the examples, the packing of the AAR, and
# the conformance suite.
#
#   CACTUS_PREFIX=PREFIX sdks/kotlin/test.sh       PREFIX as of scripts/install_c.sh; or CACTUS_LIB_PATH=libcactus.so
#
# CACTUS_PROGRAM names the program that makes bundles (target/debug/cactus). CACTUS_SOAK=1000 makes the interleavings many.
# CACTUS_CONFORMANCE=0 leaves the conformance suite out.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$HERE/../.." && pwd)"
[ -n "${CACTUS_LIB_PATH:-}" ] || CACTUS_LIB_PATH="${CACTUS_PREFIX:?name the library: CACTUS_PREFIX or CACTUS_LIB_PATH}/lib/libcactus.so"
CACTUS_LIB_PATH="$(realpath "$CACTUS_LIB_PATH")"
export CACTUS_LIB_PATH
PROGRAM="${CACTUS_PROGRAM:-${CARGO_TARGET_DIR:-$ROOT/target}/debug/cactus}"
[ -x "$PROGRAM" ] || { echo "$PROGRAM: there is no such program; build it (cargo build -p cactus-cli) or name one in CACTUS_PROGRAM"; exit 1; }

source "$HERE/build.sh" tests
cd "$ROOT"

# ---- what tests need ----
export CACTUS_TEST_BUNDLES="$OUT/bundles" CACTUS_GOLDEN="$ROOT/golden" CACTUS_FAKES="$OUT/fakes"
export CACTUS_CACHE="$OUT/cache" CACTUS_STATE="$OUT/state"
unset CACTUS_EMBEDDER HF_TOKEN HF_ENDPOINT
# A detector that hears a tone, as the conformance suite makes it. The real one has another rate than the tiny models that write.
vad=golden/speech/silero_vad/silero_vad_16k.safetensors
if [ -f sdks/conformance/materials.py ]; then
    mkdir -p "$OUT/detector"
    vad="$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=sdks/conformance python3 -c 'import materials, pathlib, sys; print(materials._detector(pathlib.Path(sys.argv[1])))' "$OUT/detector")"
else
    echo "SKIPPED: kotlin: live speech, as the conformance suite is not in this tree"
    export CACTUS_TEST_NO_LIVE=1
fi
# The tiny model with more context: what is said of tools does not fit its own, nor do answers that are not over before somebody cancels them.
chat="$OUT/chat-source"
rm -rf "$chat" && cp -r golden/models/qwen2_tied "$chat"
sed -i.old 's/"max_position_embeddings": 512/"max_position_embeddings": 65536/' "$chat/config.json"
while read -r name source; do
    # One that this build of the library cannot use is made again.
    if [ ! -d "$CACTUS_TEST_BUNDLES/$name" ] || [ "$PROGRAM" -nt "$CACTUS_TEST_BUNDLES/$name" ]; then
        rm -rf "${CACTUS_TEST_BUNDLES:?}/$name"
        mkdir -p "$CACTUS_TEST_BUNDLES"
        "$PROGRAM" convert "$source" "$CACTUS_TEST_BUNDLES/$name" > "$OUT/convert.log" 2>&1 || { cat "$OUT/convert.log"; exit 1; }
        touch "$CACTUS_TEST_BUNDLES/$name"
    fi
done << LIST
chat $chat
embeds golden/embedding/bert
pictures golden/embedding/clip_pictures
hears golden/speech/whisper
vad $vad
sees golden/seeing/smolvlm
LIST
mkdir -p "$CACTUS_FAKES"
fake() { local name="$1"; shift; [ -f "$CACTUS_FAKES/$name.so" ] || "${CC:-cc}" -shared -fPIC "$@" "$HERE/tests/native/fake.c" -o "$CACTUS_FAKES/$name.so"; }
fake newer -DFAKE_ABI=99
fake older -DFAKE_ABI=0
fake lacking -DFAKE_ABI=1
fake other

run() { # JAVA CLASS ARGUMENTS: an example
    timeout 120 "$JDK/bin/java" -Xcheck:jni -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dcactus.jni.path=$JNI" -cp "$STDLIB:$OUT/classes:$OUT/tests" "$@"
}

# What -Xcheck:jni says goes to the output and fails nothing by itself.
jni_is_clean() {
    if grep -nE "^(WARNING|FATAL ERROR|ReleasePrimitive|Warning).*(JNI|in native)" "$1"; then
        echo "-Xcheck:jni has found something: see above"
        return 1
    fi
}

# ---- unit tests ----
if [ -n "$JUNIT" ]; then
    jdks=("$JDK")
    for each in /usr/lib/jvm/temurin-*-jdk-* /usr/lib/jvm/java-2?-openjdk-*; do
        if [ -x "$each/bin/java" ] && [ "$each" != "$JDK" ]; then jdks+=("$each"); fi
    done
    [ "${#jdks[@]}" -gt 1 ] || echo "SKIPPED: kotlin: the newest JDK is not here; tests run on one JDK"
    for jdk in "${jdks[@]}"; do
        version="$("$jdk/bin/java" -version 2>&1 | head -n 1)"
        access=()
        case "$version" in *'"17.'* | *'"1'[0-6]*) ;; *) access=(--enable-native-access=ALL-UNNAMED) ;; esac
        echo "== unit tests on $version"
        log="$OUT/junit.log"
        status=0
        timeout 500 "$jdk/bin/java" "${access[@]}" -Xcheck:jni -Xmx1g -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dcactus.jni.path=$JNI" \
            -cp "$STDLIB:$OUT/classes:$OUT/android:$OUT/standins:$OUT/tests:$KOTLIN_LIB/kotlin-test.jar:$KOTLIN_LIB/kotlin-test-junit5.jar:$JUNIT" \
            org.junit.platform.console.ConsoleLauncher --disable-banner --details=tree --scan-classpath "$OUT/tests" > "$log" 2>&1 || status=$?
        if [ "$status" -ne 0 ]; then cat "$log"; exit 1; fi
        jni_is_clean "$log"
        # A launcher that found nothing has passed nothing.
        grep -E "interleavings:|tests (successful|failed)" "$log"
        grep -qE "\[ +([3-9][0-9]|[0-9]{3,}) tests successful" "$log" || { echo "fewer tests ran than there are"; cat "$log"; exit 1; }
    done
else
    echo "SKIPPED: kotlin: JUnit is not here (Debian package junit5), so no unit test ran"
fi

# ---- examples ----
echo "== examples"
b="$CACTUS_TEST_BUNDLES"
python3 - "$OUT/tone.wav" << 'WAV'
import math, struct, sys, wave
with wave.open(sys.argv[1], "wb") as file:
    file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
    file.writeframes(b"".join(struct.pack("<h", int(16000 * math.sin(i * i * 1e-5))) for i in range(64000)))
WAV
example() { # CLASS, what its output has to contain, ARGUMENTS
    local class="$1" want="$2"
    shift 2
    run "$class" "$@" > "$OUT/example.log" 2>&1 || { echo "$class failed"; cat "$OUT/example.log"; exit 1; }
    grep -qE -- "$want" "$OUT/example.log" || { echo "$class does not say $want"; cat "$OUT/example.log"; exit 1; }
    jni_is_clean "$OUT/example.log"
    echo "   $class"
}
example examples.install.Install "can be used" "$b/chat"
example examples.chat.Chat "tokens, 5 messages" "$b/chat"
example examples.stream.Stream "^\[(length|stop)\]" "$b/chat"
example examples.cancel.Cancel "kept: " "$b/chat"
example examples.tools.Tools '^may it call weather\(.*"city".*\)\? yes$' "$b/chat"
example examples.structured.Structured "Review\(mood=(GOOD|BAD), stars=[1-5], isLong=(true|false)\)" "$b/chat"
example examples.picture.Picture "^\([1-9][0-9]* tokens read, [1-9][0-9]* written\)$" "$b/sees" golden/pictures/files/rgb.png
[ -n "${CACTUS_TEST_NO_LIVE:-}" ] || example examples.transcribe.Transcribe "certain: " "$b/hears" "$OUT/tone.wav" "$b/vad"
example examples.search.EmbedAndSearch "^[01]\.[0-9]{3} " "$b/embeds"
example examples.lifecycle.Lifecycle "closed: handle" "$b/chat"
example JavaChat "^(stop|length|tool_calls)$" "$b/chat"
# The address is one where nobody answers: a "y" leaves the answer to this machine.
example examples.hybrid.Hybrid "answered by local" "$b/chat" "http://127.0.0.1:9/v1#m" <<< y

# ---- shrunk by an application's build ----
if ! command -v proguard > /dev/null && [ -z "${CACTUS_NO_INSTALL:-}" ]; then
    apt-get install -y --no-install-recommends proguard-cli > /dev/null 2>&1 || true
fi
if command -v proguard > /dev/null; then
    echo "== examples, shrunk and renamed with the consumer rules"
    source "$HERE/tools/shrink.sh"
    shrink "$OUT/shrunk.jar"
    for each in "examples.stream.Stream $b/chat" "examples.tools.Tools $b/chat" "examples.chat.Chat $b/chat" "examples.search.EmbedAndSearch $b/embeds"; do
        # shellcheck disable=SC2086
        timeout 120 "$JDK/bin/java" -Xcheck:jni "-Dcactus.jni.path=$JNI" -cp "$STDLIB:$OUT/shrunk.jar" $each > "$OUT/example.log" 2>&1 ||
            { cat "$OUT/example.log"; exit 1; }
        echo "   ${each%% *}"
    done
else
    echo "SKIPPED: kotlin: ProGuard is not here (Debian package proguard-cli), so the consumer rules were not tried"
fi

# ---- overhead ----
echo "== overhead of streaming"
timeout 300 "$JDK/bin/java" "-Dcactus.jni.path=$JNI" -cp "$STDLIB:$OUT/classes:$OUT/tests" dev.cactusengine.overhead.Overhead "$b/chat"

# ---- Android ----
echo "== packing of the AAR, with libraries of this system in place of Android's"
mkdir -p "$OUT/stripped"
strip -S -o "$OUT/stripped/libcactus.so" "$CACTUS_LIB_PATH"
cp "$JNI" "$OUT/stripped/libcactus_jni.so"
pair="$OUT/stripped/libcactus.so,$OUT/stripped/libcactus_jni.so"
"$HERE/android.sh" --test "$OUT/aar" "x86_64=$pair" "linux-x86_64=$pair"
refused() { # what it has to say, ARGUMENTS
    local want="$1"
    shift
    if "$HERE/android.sh" "$@" > "$OUT/refused.log" 2>&1; then echo "it was not refused: $*"; exit 1; fi
    grep -q -- "$want" "$OUT/refused.log" || { cat "$OUT/refused.log"; exit 1; }
}
refused "was not linked for Android" "$OUT/refused" "x86_64=$pair"
refused "is not for AArch64" --test "$OUT/refused" "arm64-v8a=$pair"
mkdir -p "$OUT/small-pages"
"${CC:-cc}" -shared -fPIC -Wl,-z,max-page-size=4096 -DFAKE_ABI=1 "$HERE/tests/native/fake.c" -o "$OUT/small-pages/libcactus.so"
refused "expected 16384" --test "$OUT/refused" "x86_64=$OUT/small-pages/libcactus.so"
refused "it does not export cactus_" --test "$OUT/refused" "x86_64=$OUT/small-pages/libcactus.so"
jar="$(find "$OUT/aar/maven" -name 'cactus-engine-jvm-*.jar' -not -name '*-sources.jar')"
env -u CACTUS_LIB_PATH "$JDK/bin/java" -cp "$STDLIB:$jar:$OUT/tests" examples.install.Install "$b/chat"

# ---- the JNI library for ARM64, without an NDK ----
lld="$(command -v ld.lld || ls "$(rustc --print sysroot 2> /dev/null)"/lib/rustlib/*/bin/gcc-ld/ld.lld 2> /dev/null || true)"
if command -v aarch64-linux-gnu-gcc > /dev/null && [ -n "$lld" ]; then
    echo "== libcactus_jni links for Android on ARM64, against empty libraries: a check of its symbols and pages, and no product"
    arm="$OUT/arm64"
    mkdir -p "$arm"
    (cd "$arm" && echo > empty.c && aarch64-linux-gnu-gcc -c -fPIC -nostdlib empty.c -o empty.o)
    for each in c dl; do "$lld" -shared -soname "lib$each.so" "$arm/empty.o" -o "$arm/lib$each.so"; done
    aarch64-linux-gnu-gcc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -fno-stack-protector -U_FORTIFY_SOURCE -D__ANDROID__ \
        -I crates/ffi/include -I "$JDK/include" -I "$JDK/include/$JNI_MD" -c "$HERE/src/native/cactus_jni.c" -o "$arm/jni.o"
    "$lld" -m aarch64linux -shared -z max-page-size=16384 -soname libcactus_jni.so --unresolved-symbols=ignore-all "$arm/jni.o" \
        -L "$arm" -lc -ldl -o "$arm/libcactus_jni.so"
    "$HERE/android.sh" --test "$OUT/aar-arm64" "arm64-v8a=$arm/libcactus_jni.so"
    # Functions of bionic, and libraries that applications may use.
    used="$(readelf -W --dyn-syms "$arm/libcactus_jni.so" | awk '$7 == "UND" && $8 != "" { print $8 }' | sort)"
    strangers="$(comm -23 <(echo "$used") <(printf '%s\n' calloc dlerror dlopen dlsym free malloc memcpy memset pthread_key_create pthread_setspecific snprintf strlen))"
    [ -z "$strangers" ] || { echo "it uses $strangers, which may not be in Android"; exit 1; }
    needs="$(readelf -d "$arm/libcactus_jni.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')"
    [ "$needs" = "libc.so libdl.so " ] || { echo "it needs $needs"; exit 1; }
else
    echo "SKIPPED: kotlin: aarch64-linux-gnu-gcc or ld.lld is not here, so the JNI library was not linked for ARM64"
fi

# ---- conformance ----
if [ "${CACTUS_CONFORMANCE:-1}" = 0 ]; then
    echo "SKIPPED: kotlin: the conformance suite, as CACTUS_CONFORMANCE=0 says"
elif [ -f sdks/conformance/run.py ] && [ -d sdks/conformance/recorded ]; then
    echo "== conformance"
    CACTUS_KOTLIN_BUILD="$OUT" python3 sdks/conformance/run.py --only kotlin --require kotlin --cactus "$PROGRAM" --lib "$CACTUS_LIB_PATH"
else
    echo "SKIPPED: kotlin: there is no recorded conformance suite in this tree"
fi
echo "kotlin: everything passed"
