# shellcheck shell=bash
# Sourced: runs a program in Flutter's headless engine, without the command `flutter`. dart/tool/environment.sh goes before it.
# shellcheck disable=SC2034
flutter_packages=(dart-sdk dart-ffi dart-matcher flutter flutter-test flutter-tester flutter-patched-sdk flutter-engine-tools)

# headless PROGRAM PACKAGES: compiles it and runs it. The exit code says nothing of what has happened.
headless() {
    inside /usr/lib/dart/bin/dartaotruntime "$engine/frontend_server_aot.dart.snapshot" --sdk-root "$engine/flutter_patched_sdk/" \
        --target=flutter --packages="$2" --output-dill "$work/program.dill" "$1" >"$work/compiled" || {
        cat "$work/compiled" >&2
        return 1
    }
    # As the command `flutter` does, so that time and fonts are those of tests.
    FLUTTER_TEST=true inside timeout 300 "$engine/flutter_tester" --disable-vm-service --non-interactive --use-test-fonts --packages="$2" "$work/program.dill"
}
