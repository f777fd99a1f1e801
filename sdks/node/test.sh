#!/usr/bin/env bash
# Builds the package and runs all of its tests: unit tests, examples on tiny models, Bun and Deno, packing.
#
#   CACTUS_PREFIX=PREFIX sdks/node/test.sh       PREFIX as scripts/install_c.sh makes it; or CACTUS_LIB_PATH names the library
#
# CACTUS_SOAK=1000 makes the test of interleavings a long one. CACTUS_SANITIZE=1 runs the raw layer's tests with AddressSanitizer, too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
if [ -n "${CACTUS_PREFIX:-}" ]; then
    [ -n "${CACTUS_LIB_PATH:-}" ] || export CACTUS_LIB_PATH=$CACTUS_PREFIX/lib/libcactus.so
    [ ! -e "$CACTUS_PREFIX/include/cactus.h" ] || export CACTUS_INCLUDE=$CACTUS_PREFIX/include
fi
[ -e "${CACTUS_LIB_PATH:-}" ] || { echo "there is no library: set CACTUS_PREFIX or CACTUS_LIB_PATH" >&2; exit 1; }
for tool in node npm "${CXX:-c++}"; do
    command -v "$tool" > /dev/null || { echo "SKIPPED: there is no $tool"; exit 77; }
done

# Compiler, types and zod, of fixed versions.
if [ ! -e node_modules/typescript/package.json ]; then
    npm install --silent --no-audit --no-fund --no-package-lock || { echo "SKIPPED: npm cannot install typescript and zod now"; exit 77; }
fi
node scripts/build.mjs

cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export CACTUS_TEST_CACHE=$cache/models CACTUS_CACHE=$cache/user CACTUS_STATE=$cache/state
export CACTUS_TOOLS=${CACTUS_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/cactus/sdk-tools}

echo "== unit tests (node $(node --version))"
node --test --test-reporter=spec test/*.test.mjs

# Other hosts run the examples, and the contract of streams.
hosts=(node)
bun=$(command -v bun || true)
deno=$(command -v deno || true)
for host in bun deno; do
    if [ -z "${!host}" ]; then
        case $host in
            bun) package=@oven/bun-linux-x64@1.4.5 program=bin/bun ;;
            deno) package=@deno/linux-x64-glibc@2.9.6 program=deno ;;
        esac
        folder=$CACTUS_TOOLS/npm/$package
        if [ ! -e "$folder/package.json" ] && [ "$(uname -sm)" = "Linux x86_64" ]; then
            made=$(mktemp -d)
            if (cd "$made" && npm pack --silent "$package" > /dev/null && tar xzf ./*.tgz); then
                mkdir -p "$(dirname "$folder")"
                mv "$made/package" "$folder"
            fi
            rm -rf "$made"
        fi
        [ ! -e "$folder/$program" ] || { chmod +x "$folder/$program"; printf -v "$host" %s "$folder/$program"; }
    fi
    if [ -n "${!host}" ]; then hosts+=("$host"); else echo "SKIPPED: there is no $host"; fi
done

for host in "${hosts[@]}"; do
    case $host in
        node) run=(node) ;;
        bun) run=("$bun") ;;
        deno) run=("$deno" run --allow-all --quiet) ;;
    esac
    echo "== examples (${run[*]} $("${run[0]}" --version | head -1))"
    "${run[@]}" test/examples.mjs "${run[@]}"
    case $host in
        bun) "$bun" test ./test/stream.test.mjs ./test/model.test.mjs ;;
        deno) "$deno" test --allow-all --quiet test/stream.test.mjs test/model.test.mjs ;;
    esac
done

echo "== packages"
node scripts/pack.mjs

if [ -n "${CACTUS_SANITIZE:-}" ]; then bash test/sanitize.sh; else echo "SKIPPED: AddressSanitizer (CACTUS_SANITIZE=1)"; fi
