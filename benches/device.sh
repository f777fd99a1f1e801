#!/bin/sh
# One row of a table of devices: a prompt of 1024 tokens on all fast cores, 100 generated tokens on one, weights in 8 bits.
#
#     sh benches/device.sh [MODEL]        on the device itself: a Raspberry Pi, a phone with Termux, a Mac, any Linux
#
# The model is LFM2.5-350M unless another one is named (an id, a folder, a GGUF file or a bundle). The program is `CACTUS_PROGRAM`, or
# the one in target/release, which is built if it is not there. It takes some minutes. Before: plug the device in, close what else runs,
# and let it cool. The row is printed at the end, with what else tells one device from another; please send both.
set -eu

cd "$(dirname "$0")/.."
model=${1:-LiquidAI/LFM2.5-350M}
program=${CACTUS_PROGRAM:-target/release/cactus}
if [ ! -x "$program" ]; then
    command -v cargo >/dev/null || {
        echo "device.sh: there is no program at \`$program\`, and no \`cargo\` to build it with; install Rust (https://rustup.rs), or name the program with CACTUS_PROGRAM" >&2
        exit 1
    }
    cargo build --release --locked -p cactus-cli
fi

# What the device is called: a Raspberry Pi, a phone, a Mac, else its processor.
device() {
    if [ -r /proc/device-tree/model ]; then
        tr -d '\0' </proc/device-tree/model
    elif command -v getprop >/dev/null; then
        printf '%s %s' "$(getprop ro.product.manufacturer)" "$(getprop ro.product.model)"
    elif [ "$(uname -s)" = Darwin ]; then
        sysctl -n hw.model
    else
        sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1
    fi
}

# The number behind a name in the report.
number() {
    printf '%s' "$report" | tr -d ' \n' | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"
}

# The median speed of a test in the report.
speed() {
    printf '%s' "$report" | tr -d ' \n' | sed -n "s/.*\"name\":\"$1\"[^}]*\"tok_s_median\":\([0-9.]*\).*/\1/p"
}

heat() {
    for zone in /sys/class/thermal/thermal_zone*/temp; do
        [ -r "$zone" ] && awk '{ printf "%.0f °C", ($1 > 1000 ? $1 / 1000 : $1) }' "$zone" && return
    done
    printf 'not known'
}

before=$(heat)
report=$("$program" bench "$model" --prefill 1024 --decode 100 --decode-threads 1 --json)
after=$(heat)
prefill=$(speed prefill-1024)
decode=$(speed decode-100)
if [ -z "$prefill" ] || [ -z "$decode" ]; then
    echo "device.sh: the report of \`cactus bench\` has no speeds: $report" >&2
    exit 1
fi

echo
echo "| Device | Prefill (tok/s) | Decode (tok/s) | RAM: own / with mapped weights |"
echo "|---|---:|---:|---:|"
printf '| %s | %.0f | %.0f | %.0f / %.0f MB |\n' "$(device)" "$prefill" "$decode" "$(number anon_mb)" "$(number peak_rss_mb)"
echo
echo "model          $model, $(number mapped_mb) MB of weights"
echo "version        $("$program" --version)"
echo "system         $(uname -srm)"
echo "kernels        $(printf '%s' "$report" | tr -d ' \n' | sed -n 's/.*"isa":"\([^"]*\)".*/\1/p'), $(number threads) threads for the prompt, 1 for generating"
echo "temperature    $before before, $after after"
for governor in /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; do
    [ -r "$governor" ] && echo "governor       $(cat "$governor")"
done
if command -v vcgencmd >/dev/null; then
    # Anything but 0x0 says that the board was throttled or had too little power.
    echo "throttled      $(vcgencmd get_throttled)"
fi
