#!/usr/bin/env python3
"""Packs the Kotlin SDK: android.sh calls it, and says what it takes. Equal inputs give equal bytes."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
GROUP, ARTIFACT = "dev.cactus-engine", "cactus-engine"
#: The oldest that it is made for, as build.sh compiles it.
KOTLIN, COROUTINES = "2.2.0", "1.8.0"
MIN_SDK = 24

#: Systems, and the machine of their libraries as readelf names it.
ABIS = {"arm64-v8a": "AArch64", "x86_64": "X86-64", "armeabi-v7a": "ARM"}
DESKTOPS = {"linux-x86_64": "X86-64", "linux-aarch64": "AArch64"}
PAGE = 16_384

#: What Android has for applications.
ANDROID_NEEDS = {"libc.so", "libm.so", "libdl.so", "liblog.so", "libcactus.so"}


def readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def check(path: Path, system: str, is_test: bool) -> list[str]:
    """What is wrong with a library."""
    machine = ABIS.get(system) or DESKTOPS.get(system)
    if machine is None or path.suffix != ".so":
        return []
    wrong = []
    header = readelf("-h", str(path))
    if not re.search(rf"Machine:.*\b{re.escape(machine)}\b", header):
        wrong.append(f"it is not for {machine}")
    aligns = [int(line.split()[-1], 16) for line in readelf("-l", str(path)).splitlines() if line.strip().startswith("LOAD ")]
    if not aligns or (min(aligns) < PAGE and system != "armeabi-v7a"):
        wrong.append(f"its segments are aligned to {min(aligns, default=0)} bytes, expected {PAGE}: link it with -z max-page-size={PAGE}")
    names = [line.split()[-1] for line in readelf("--dyn-syms", str(path)).splitlines() if re.search(r"\bGLOBAL\b.*\bDEFAULT\b +\d+ ", line)]
    names = [name.split("@")[0] for name in names]
    want = r"cactus_\w+" if path.name == "libcactus.so" else r"JNI_OnLoad"
    strangers = sorted(name for name in names if not re.fullmatch(want, name))
    if strangers:
        wrong.append(f"it exports {', '.join(strangers[:5])}: only {want} belongs there")
    if path.name == "libcactus.so":
        lacking = sorted(set((ROOT / "crates/ffi/symbols.txt").read_text().split()) - set(names))
        if lacking:
            wrong.append(f"it does not export {', '.join(lacking[:5])}")
    elif "JNI_OnLoad" not in names:
        wrong.append("it does not export JNI_OnLoad")
    needs = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", str(path)))
    foreign = sorted(set(needs) - ANDROID_NEEDS)
    if system in ABIS and foreign and not is_test:
        wrong.append(f"it needs {', '.join(foreign)}, which Android does not have: it was not linked for Android")
    print(f"   {system}/{path.name}: {path.stat().st_size:,} bytes, pages of {min(aligns, default=0)}, {len(names)} names, needs {', '.join(needs)}")
    return wrong


def archive(place: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as out:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            out.writestr(entry, files[name])


def under(folder: Path, skip: str = "\0") -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(skip)}


def sources(*folders: str) -> dict[str, bytes]:
    all_files: dict[str, bytes] = {}
    for folder in folders:
        all_files |= under(HERE / "src" / folder / "kotlin")
    return all_files


def aar(arguments: argparse.Namespace, natives: dict[str, list[Path]]) -> dict[str, bytes]:
    classes = under(arguments.classes, skip="META-INF/com.android.tools") | under(arguments.android, skip="META-INF/MANIFEST")
    inner = arguments.out / "classes.jar"
    archive(inner, classes)
    rules = (HERE / "consumer-rules.pro").read_bytes()
    files = {
        "AndroidManifest.xml": (
            '<?xml version="1.0" encoding="utf-8"?>\n<manifest xmlns:android="http://schemas.android.com/apk/res/android"\n'
            f'    package="dev.cactusengine">\n    <uses-sdk android:minSdkVersion="{MIN_SDK}" />\n</manifest>\n'
        ).encode(),
        "R.txt": b"",
        "proguard.txt": rules,
        "classes.jar": inner.read_bytes(),
        "META-INF/com/android/build/gradle/aar-metadata.properties": (
            b"aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=1\nminCompileSdkExtension=0\nminAndroidGradlePluginVersion=1.0.0\n"
        ),
    }
    inner.unlink()
    for abi, libraries in natives.items():
        for library in libraries:
            files[f"jni/{abi}/{library.name}"] = library.read_bytes()
    return files


def pom(artifact: str, packaging: str, version: str) -> bytes:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <!-- do_not_remove: published-with-gradle-metadata -->
  <modelVersion>4.0.0</modelVersion>
  <groupId>{GROUP}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>{packaging}</packaging>
  <name>Cactus</name>
  <description>Language models, speech and vectors on this device</description>
  <licenses>
    <license><name>MIT</name></license>
    <license><name>Apache-2.0</name></license>
  </licenses>
  <dependencies>
    <dependency>
      <groupId>org.jetbrains.kotlin</groupId>
      <artifactId>kotlin-stdlib</artifactId>
      <version>{KOTLIN}</version>
    </dependency>
    <dependency>
      <groupId>org.jetbrains.kotlinx</groupId>
      <artifactId>kotlinx-coroutines-core</artifactId>
      <version>{COROUTINES}</version>
    </dependency>
  </dependencies>
</project>
""".encode()


DEPENDENCIES = [
    {"group": "org.jetbrains.kotlin", "module": "kotlin-stdlib", "version": {"requires": KOTLIN}},
    {"group": "org.jetbrains.kotlinx", "module": "kotlinx-coroutines-core", "version": {"requires": COROUTINES}},
]


def attributes(usage: str, platform: str) -> dict[str, str]:
    environment = {"jvm": "standard-jvm", "androidJvm": "android"}[platform]
    return {
        "org.gradle.category": "library",
        "org.gradle.jvm.environment": environment,
        "org.gradle.usage": f"java-{usage}",
        "org.jetbrains.kotlin.platform.type": platform,
    }


def module(artifact: str, version: str, variants: list[dict]) -> bytes:
    component = {"group": GROUP, "module": artifact, "version": version, "attributes": {"org.gradle.status": "release"}}
    return (json.dumps({"formatVersion": "1.1", "component": component, "variants": variants}, indent=2) + "\n").encode()


def publish(out: Path, artifact: str, version: str, files: dict[str, bytes]) -> None:
    """Files of an artifact, by what comes behind its name, with their sums."""
    folder = out / "maven" / Path(*GROUP.split(".")) / artifact / version
    folder.mkdir(parents=True)
    for end, content in files.items():
        place = folder / f"{artifact}-{version}{end}"
        place.write_bytes(content)
        for kind in ("md5", "sha1", "sha256", "sha512"):
            place.with_name(f"{place.name}.{kind}").write_text(hashlib.new(kind, content).hexdigest())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", action="store_true", help="libraries may be of another system than Android")
    parser.add_argument("--version", required=True)
    parser.add_argument("--classes", type=Path, required=True)
    parser.add_argument("--android", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most-bytes", type=int, default=0, help="the most that the libraries of one ABI may have together")
    parser.add_argument("libraries", nargs="+", metavar="SYSTEM=LIBCACTUS,LIBCACTUS_JNI")
    arguments = parser.parse_args()
    natives: dict[str, list[Path]] = {}
    wrong = []
    for given in arguments.libraries:
        system, _, paths = given.partition("=")
        if system not in ABIS and system not in DESKTOPS and not system.startswith(("macos-", "windows-")):
            raise SystemExit(f"{system}: no such system; there are {', '.join([*ABIS, *DESKTOPS])}")
        natives[system] = [Path(path) for path in paths.split(",")]
        for path in natives[system]:
            if not path.is_file():
                raise SystemExit(f"{path}: there is no such file")
            wrong += [f"{system}/{path.name}: {what}" for what in check(path, system, arguments.test)]
        lacking = {"libcactus", "libcactus_jni"} - {path.stem for path in natives[system]}
        if lacking and not arguments.test:
            wrong.append(f"{system}: there is no {', '.join(sorted(lacking))}")
        size = sum(path.stat().st_size for path in natives[system])
        if 0 < arguments.most_bytes < size:
            wrong.append(f"{system}: {size:,} bytes, at most {arguments.most_bytes:,}")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    shutil.rmtree(arguments.out / "maven", ignore_errors=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    version = arguments.version

    jar = under(arguments.classes)
    jar["META-INF/MANIFEST.MF"] = b"Manifest-Version: 1.0\r\nAutomatic-Module-Name: dev.cactusengine\r\n\r\n"
    for system in natives:
        if system not in ABIS:
            jar |= {f"dev/cactusengine/native/{system}/{path.name}": path.read_bytes() for path in natives[system]}
    made: dict[str, dict[str, bytes]] = {}
    parts = [("jvm", "jvm", ".jar", jar, ("commonMain", "jvmMain"))]
    phones = {system: paths for system, paths in natives.items() if system in ABIS}
    if phones:
        parts.append(("android", "androidJvm", ".aar", aar(arguments, phones), ("commonMain", "jvmMain", "androidMain")))
    for name, platform, end, content, folders in parts:
        artifact = f"{ARTIFACT}-{name}"
        file = arguments.out / "part"
        archive(file, content)
        packed = file.read_bytes()
        archive(file, sources(*folders))
        named = {"name": f"{artifact}-{version}{end}", "url": f"{artifact}-{version}{end}", "size": len(packed)}
        named |= {kind: hashlib.new(kind, packed).hexdigest() for kind in ("sha512", "sha256", "sha1", "md5")}
        variants = [
            {"name": f"{name}{usage.title()}Elements", "attributes": attributes(usage, platform), "dependencies": DEPENDENCIES, "files": [named]}
            for usage in ("api", "runtime")
        ]
        made[artifact] = {
            end: packed,
            "-sources.jar": file.read_bytes(),
            ".pom": pom(artifact, end[1:], version),
            ".module": module(artifact, version, variants),
        }
        file.unlink()
    joined = [
        {
            "name": f"{name}{usage.title()}Elements-published",
            "attributes": attributes(usage, platform),
            "available-at": {
                "url": f"../../{ARTIFACT}-{name}/{version}/{ARTIFACT}-{name}-{version}.module",
                "group": GROUP,
                "module": f"{ARTIFACT}-{name}",
                "version": version,
            },
        }
        for name, platform, *_ in parts
        for usage in ("api", "runtime")
    ]
    made[ARTIFACT] = {".pom": pom(ARTIFACT, "pom", version), ".module": module(ARTIFACT, version, joined)}
    for artifact, files in made.items():
        publish(arguments.out, artifact, version, files)
        print(f"   {artifact}: " + ", ".join(f"{end} {len(content):,}" for end, content in files.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
