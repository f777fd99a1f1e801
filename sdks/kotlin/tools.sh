#!/usr/bin/env bash
# Finds or installs what builds and tests the Kotlin SDK: the Kotlin compiler (npm), a JDK and JUnit (Debian).
# To be sourced. It sets KOTLIN_LIB, JDK and JUNIT, or leaves JUNIT empty. With CACTUS_NO_INSTALL=1 it installs nothing.
set -euo pipefail

KOTLIN_VERSION=2.4.20
TOOLS="${CACTUS_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/cactus/tools}"

# Says that tools are missing, as a runner of the conformance suite says it.
skip() {
    echo "SKIPPED: $*"
    exit 77
}

install_kotlin() {
    local place="$TOOLS/kotlin-compiler-$KOTLIN_VERSION"
    KOTLIN_LIB="$place/package/lib"
    [ -f "$KOTLIN_LIB/kotlin-compiler.jar" ] && return
    [ -z "${CACTUS_NO_INSTALL:-}" ] && command -v npm > /dev/null || skip "kotlin: there is no Kotlin compiler"
    mkdir -p "$TOOLS"
    local made
    made="$(mktemp -d "$TOOLS/kotlin.XXXXXX")"
    (cd "$made" && npm pack --silent "kotlin-compiler@$KOTLIN_VERSION" > /dev/null && tar xzf kotlin-compiler-*.tgz && rm kotlin-compiler-*.tgz) ||
        { rm -rf "$made"; skip "kotlin: the Kotlin compiler cannot be downloaded"; }
    mv -T "$made" "$place" 2> /dev/null || rm -rf "$made"
}

find_jdk() {
    local each
    for each in ${JAVA_HOME:+"$JAVA_HOME"} /usr/lib/jvm/java-17-openjdk-* /usr/lib/jvm/*jdk*; do
        if [ -x "$each/bin/javac" ] && [ -f "$each/include/jni.h" ]; then JDK="$each"; return; fi
    done
    [ -z "${CACTUS_NO_INSTALL:-}" ] && apt-get install -y --no-install-recommends default-jdk-headless > /dev/null 2>&1 || skip "kotlin: there is no JDK"
    for each in /usr/lib/jvm/*; do
        if [ -x "$each/bin/javac" ] && [ -f "$each/include/jni.h" ]; then JDK="$each"; return; fi
    done
    skip "kotlin: there is no JDK"
}

find_junit() {
    local java=/usr/share/java
    JUNIT=""
    if [ ! -f "$java/junit-platform-console.jar" ] && [ -z "${CACTUS_NO_INSTALL:-}" ]; then
        apt-get install -y --no-install-recommends junit5 > /dev/null 2>&1 || true
    fi
    [ -f "$java/junit-platform-console.jar" ] || return 0
    local each
    for each in junit-jupiter-api junit-jupiter-engine junit-platform-commons junit-platform-engine junit-platform-launcher \
        junit-platform-reporting junit-platform-console opentest4j opentest4j-reporting-events opentest4j-reporting-schema apiguardian-api \
        picocli univocity-parsers; do
        [ ! -f "$java/$each.jar" ] || JUNIT="$JUNIT:$java/$each.jar"
    done
    JUNIT="${JUNIT#:}"
}

install_kotlin
find_jdk
find_junit
STDLIB="$KOTLIN_LIB/kotlin-stdlib.jar:$KOTLIN_LIB/kotlinx-coroutines-core-jvm.jar:$KOTLIN_LIB/annotations-13.0.jar"
