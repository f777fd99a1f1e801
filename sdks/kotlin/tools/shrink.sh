#!/usr/bin/env bash
# Shrinks and renames the SDK and some examples with the rules that applications get, by ProGuard (R8 is not in Debian), into $1, and
# prints nothing. To be sourced behind build.sh.
set -euo pipefail

shrink() {
    local out="$1" work="$OUT/shrink" release8
    mkdir -p "$work"
    # ProGuard reads byte code up to Java 13: signatures of Java 8, with its number.
    release8="$work/java8.jar"
    [ -f "$release8" ] || python3 - "$JDK/lib/ct.sym" "$release8" << 'SIGNATURES'
import sys, zipfile
names = set()
with zipfile.ZipFile(sys.argv[1]) as symbols, zipfile.ZipFile(sys.argv[2], "w") as out:
    for name in symbols.namelist():
        release, _, rest = name.partition("/")
        # From JDK 12 on the name of a module stands before that of a package.
        place = rest.partition("/")[2] if rest.split("/")[0].find(".") > 0 else rest
        if "8" not in release or not name.endswith(".sig") or place in names:
            continue
        names.add(place)
        content = bytearray(symbols.read(name))
        content[6:8] = (52).to_bytes(2, "big")
        out.writestr(place[:-4] + ".class", bytes(content))
SIGNATURES
    cat > "$work/rules.pro" << RULES
-injars $OUT/classes
-injars $OUT/tests(examples/**.class)
-outjars $out
-libraryjars $release8
-libraryjars $KOTLIN_LIB/kotlin-stdlib.jar
-libraryjars $KOTLIN_LIB/kotlinx-coroutines-core-jvm.jar
-keep class examples.** { public static void main(java.lang.String[]); }
-dontwarn **
-dontnote **
-include $HERE/consumer-rules.pro
RULES
    rm -f "$out"
    proguard "@$work/rules.pro" > "$work/log.txt" 2>&1 || { tail -n 20 "$work/log.txt"; return 1; }
}
