# shellcheck shell=bash
# Sourced by the scripts of the Dart and Flutter SDKs: finds the tools, the library and the program, and makes bundles of tiny models.
#
#   CACTUS_LIB_PATH or CACTUS_PREFIX   the library, or the prefix where scripts/install_c.sh has put it
#   CACTUS_PROGRAM                     the command `cactus`, which makes the bundles; else it is looked for in the prefix and in target/
#   CACTUS_SID                         folder of a Debian root with the tools, shared with other SDKs; made where it is missing
#   CACTUS_TEST_BUNDLES                folder for bundles, kept between runs
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd -P)
sid=${CACTUS_SID:-$HOME/.cache/cactus/sid}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=/usr/share/dart/packages
engine=/usr/lib/flutter-engine/linux-x64

# The tools of this SDK are missing: 77 says so to whoever called.
skip() {
    echo "SKIPPED: $*"
    exit 77
}

# Installs Debian's packages into the root, unless this system has them.
tools() {
    if [[ -x /usr/lib/dart/bin/dart && -d $packages/ffi && -x $engine/flutter_tester ]]; then
        inside() { "$@"; }
        return
    fi
    [[ $(uname -m) == x86_64 ]] || skip "Debian's tools for Flutter are for x86-64"
    if [[ $(id -u) != 0 ]] || ! { [[ -e $sid/.made ]] || command -v debootstrap >/dev/null; }; then
        skip "Dart's tools are not installed, and a Debian root with them takes root and debootstrap"
    fi
    "$repository/scripts/debian_root.sh" "$sid" "$@" >"$work/packages" || skip "Debian's packages cannot be installed: $*"
    grep -E '^(dart-sdk|flutter-tester)' "$work/packages" || true
    inside() {
        DEBIAN_ROOT_BIND="$work ${bound:-} ${DEBIAN_ROOT_BIND:-}" "$repository/scripts/debian_root.sh" "$sid" -- "$@"
    }
}

dart() { inside /usr/lib/dart/bin/dart "$@"; }

# Names Debian's packages to Dart; there is no pub here. Arguments are our own packages: NAME=FOLDER.
package_config() {
    local root='' file=$1 folder
    shift
    [[ -d $packages/ffi ]] || root=$sid
    mkdir -p "$(dirname "$file")"
    {
        echo '{"configVersion": 2, "packages": ['
        for folder in "$root$packages"/*/; do
            folder=$(basename "$folder")
            echo "{\"name\": \"$folder\", \"rootUri\": \"file://$packages/$folder\", \"packageUri\": \"lib/\", \"languageVersion\": \"3.10\"},"
        done
        local separator=''
        for folder in "$@"; do
            echo "$separator{\"name\": \"${folder%%=*}\", \"rootUri\": \"file://${folder#*=}\", \"packageUri\": \"lib/\", \"languageVersion\": \"3.10\"}"
            separator=,
        done
        echo ']}'
    } >"$file"
}

# Shows the root what a plan of the conformance suite names: the folder of temporary files, and where its bundles are.
plan_folders() {
    bound="${bound:-} $(dirname "$work") $(python3 - "$1" <<'END'
import json, os, sys

found = set()


def look(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            look(each)
    elif isinstance(value, str) and value.startswith("/") and len(value) < 4096:
        found.add(os.path.dirname(value))


look(json.load(open(sys.argv[1])))
print(" ".join(sorted(folder for folder in found if os.path.isdir(folder) and folder.count("/") > 1)))
END
)"
}

library() {
    if [[ -z ${CACTUS_LIB_PATH:-} ]]; then
        CACTUS_LIB_PATH=${CACTUS_PREFIX:-/nowhere}/lib/libcactus.so
    fi
    [[ -e $CACTUS_LIB_PATH ]] || {
        echo "there is no library; set CACTUS_LIB_PATH or CACTUS_PREFIX" >&2
        exit 1
    }
    CACTUS_LIB_PATH=$(realpath "$CACTUS_LIB_PATH")
    export CACTUS_LIB_PATH
    bound="${bound:-} $(dirname "$CACTUS_LIB_PATH")"
}

# Bundles of the tiny models, as the tests want them.
bundles() {
    local place name
    program=
    for place in "${CACTUS_PROGRAM:-}" "${CACTUS_PREFIX:-}/bin/cactus" "${CACTUS_PREFIX:-}/cactus" \
        "$repository"/target/{release,debug}/cactus; do
        if [[ -x $place && -f $place ]]; then program=$place && break; fi
    done
    [[ -n $program ]] || {
        echo "there is no program to make bundles; set CACTUS_PROGRAM" >&2
        exit 1
    }
    export CACTUS_TEST_BUNDLES=${CACTUS_TEST_BUNDLES:-$work/bundles} CACTUS_TEST_GOLDEN=$repository/golden
    export CACTUS_CACHE=$work/cache CACTUS_STATE=$work/state
    mkdir -p "$CACTUS_TEST_BUNDLES"
    bound="${bound:-} $CACTUS_TEST_BUNDLES"
    local -A source=([chat]=models/qwen2_tied [tools]=models/qwen2_tied [embeds]=embedding/bert [pictures]=embedding/clip_pictures
        [sees]=seeing/smolvlm [hears]=speech/whisper)
    for name in "${!source[@]}"; do
        [[ ! -d $CACTUS_TEST_BUNDLES/$name ]] || continue
        rm -rf "$work/source"
        cp -r "$repository/golden/${source[$name]}" "$work/source"
        # Rounds of calls, and answers that are not over before somebody cancels them, need more context than this model was made for. It
        # says nothing sensible in any.
        [[ $name != tools ]] || sed -i 's/"max_position_embeddings": 512/"max_position_embeddings": 65536/' "$work/source/config.json"
        "$program" convert "$work/source" "$CACTUS_TEST_BUNDLES/$name" >/dev/null
    done
    local detector=$repository/sdks/conformance/materials.py
    if [[ -d $CACTUS_TEST_BUNDLES/vad ]]; then
        :
    elif [[ -f $detector ]]; then
        # The suite's detector of speech, which hears one tone.
        (cd "$(dirname "$detector")" && python3 -B -c '
import pathlib, sys, materials
print(materials._detector(pathlib.Path(sys.argv[1])))' "$work" >/dev/null)
        "$program" convert "$work/silero_vad_16k.safetensors" "$CACTUS_TEST_BUNDLES/vad" >/dev/null
    else
        echo "SKIPPED: tests of speech and live transcription: there is no $detector"
    fi
}
