#!/usr/bin/env python3
"""Makes every artifact of a release into one folder, with checksums and a bill of materials. It publishes nothing.

    python3 scripts/release.py                         all that this machine can make, into target/artifacts
    python3 scripts/release.py --only sbom,npm         some
    python3 scripts/release.py --profile dev --built   of what target/debug has, to try the packing
    python3 scripts/release.py --tag v0.1.0            fails unless the checkout is that tag and has its version

What a machine lacks the tools for is skipped, and said so at the end: a release is put together from several machines. Times in
archives are that of the commit, and files stand in order: the same commit, built in the same folder by the same toolchain and user, is meant to give the
same archives. Programs have paths of the machine in them, and those of two machines have not been compared.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The program: target, and what links it where that is not the host.
PROGRAMS = {
    "x86_64-unknown-linux-gnu": None,
    "aarch64-unknown-linux-gnu": "aarch64-linux-gnu-gcc",
    "aarch64-apple-darwin": "a Mac, or its SDK",
    "x86_64-apple-darwin": "a Mac, or its SDK",
    "x86_64-pc-windows-msvc": "Visual Studio's linker and libraries",
}
#: Static libraries need no linker.
APPLE = {
    "ios/arm64": "aarch64-apple-ios",
    "ios-simulator/arm64": "aarch64-apple-ios-sim",
    "macos/arm64": "aarch64-apple-darwin",
    "macos/x86_64": "x86_64-apple-darwin",
}
#: Features of the library without network code and converter.
LOCAL = "forms,speech,pictures,search,graphs"
LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"]


class Skipped(Exception):
    """What this machine lacks."""


class Release:
    def __init__(self, arguments):
        self.out = Path(arguments.out).absolute()
        self.profile, self.built = arguments.profile, arguments.built
        self.version = re.search(r'^version = "(.+?)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        self.commit = self.text("git", "rev-parse", "HEAD")
        self.time = int(self.text("git", "log", "-1", "--format=%ct"))
        os.environ["SOURCE_DATE_EPOCH"] = str(self.time)
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.target, self.folder = target, "debug" if self.profile == "dev" else self.profile
        self.host = re.search(r"host: (\S+)", self.text("rustc", "-vV"))[1]

    def text(self, *command):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    def run(self, *command, **environment):
        """Runs a command of this repository; code 77 is that of a script whose tools are not here."""
        print("+", *command, file=sys.stderr)
        done = subprocess.run([str(c) for c in command], cwd=ROOT, env=os.environ | {k: str(v) for k, v in environment.items()})
        if done.returncode == 77:
            raise Skipped("its tools are not on this machine")
        if done.returncode:
            raise SystemExit(f"{command[0]} failed with code {done.returncode}")

    def has(self, program):
        return shutil.which(program) is not None

    # ---- archives whose bytes depend on their contents alone

    def archive(self, name, files):
        """`files`: pairs of a name in the archive and a path."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for inside, path in sorted(files):
                info = tar.gettarinfo(path, inside)
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = self.time
                info.mode = 0o755 if info.mode & 0o111 else 0o644
                with open(path, "rb") as file:
                    tar.addfile(info, file)
        with open(self.out / name, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=self.time) as packed:
            packed.write(raw.getvalue())

    def files_below(self, folder, inside):
        listed = self.text("git", "ls-files", folder).splitlines()
        return [(f"{inside}/{Path(name).relative_to(folder)}", ROOT / name) for name in listed]

    # ---- what is made

    def sbom(self):
        """A bill of materials in CycloneDX 1.6, of what the program is built of on every platform."""
        metadata = json.loads(self.text("cargo", "metadata", "--locked", "--format-version", "1"))
        packages = {p["id"]: p for p in metadata["packages"]}
        nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}
        roots = [p["id"] for p in metadata["packages"] if p["name"] in ("cactus-cli", "cactus-ffi") and p["source"] is None]
        reached, waiting = set(), list(roots)
        while waiting:
            if (one := waiting.pop()) in reached:
                continue
            reached.add(one)
            normal = lambda d: any(kind["kind"] in (None, "build") for kind in d["dep_kinds"])  # noqa: E731
            waiting += [d["pkg"] for d in nodes[one]["deps"] if normal(d)]
        checksums = {}
        for block in (ROOT / "Cargo.lock").read_text().split("[[package]]"):
            fields = dict(re.findall(r'^(\w+) = "(.*)"$', block, re.M))
            checksums[fields.get("name"), fields.get("version")] = fields.get("checksum")

        def component(package):
            name, version = package["name"], package["version"]
            found = {"type": "library", "bom-ref": f"pkg:cargo/{name}@{version}", "name": name, "version": version}
            found["purl"] = found["bom-ref"]
            if package.get("license"):
                found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
            if checksum := checksums.get((name, version)):
                found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
            return found

        ref = lambda i: f"pkg:cargo/{packages[i]['name']}@{packages[i]['version']}"  # noqa: E731
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": {"type": "application", "bom-ref": "cactus", "name": "cactus", "version": self.version}},
            "components": sorted((component(packages[i]) for i in reached), key=lambda c: (c["name"], c["version"])),
            "dependencies": [{"ref": "cactus", "dependsOn": sorted(map(ref, roots))}]
            + sorted(
                (
                    {"ref": ref(i), "dependsOn": sorted({ref(d["pkg"]) for d in nodes[i]["deps"] if d["pkg"] in reached})}
                    for i in reached
                ),
                key=lambda d: d["ref"],
            ),
        }
        (self.out / f"cactus-{self.version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")

    def program(self):
        """The program for each target that can be linked here."""
        missing = []
        for target, linker in PROGRAMS.items():
            own = target == self.host
            if not own and (linker is None or not self.has(linker)):
                missing.append(f"{target} ({linker or 'a machine of its own'})")
                continue
            if self.built and not own:
                missing.append(f"{target} (--built)")
                continue
            folder = self.target / self.folder if own else self.target / target / self.folder
            if not self.built:
                more = [] if own else ["--target", target]
                named = {} if own else {f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER": linker}
                self.run("cargo", "build", "--locked", "--profile", self.profile, "--package", "cactus-cli", *more, **named)
            name = f"cactus-{self.version}-{target}"
            files = [(f"{name}/{n}", ROOT / n) for n in [*LICENSES, "README.md", "CHANGELOG.md"]]
            self.archive(f"{name}.tar.gz", [*files, (f"{name}/cactus", folder / "cactus")])
        if missing:
            raise Skipped("not linked here: " + "; ".join(missing))

    def library(self):
        """`libcactus` with headers, pkg-config and CMake: whole, without network code, and with text alone."""
        for name, features in (("libcactus", "default"), ("libcactus-local", LOCAL), ("libcactus-text", "")):
            if self.built and features != "default":
                continue
            prefix = self.target / "artifacts-prefix" / name
            shutil.rmtree(prefix, ignore_errors=True)
            named = {"CACTUS_BUILT": self.target / self.folder / "libcactus_ffi.a"} if self.built else {}
            self.run("scripts/install_c.sh", prefix, CACTUS_PROFILE=self.profile, CACTUS_FEATURES=features, **named)
            inside = f"{name}-{self.version}-{self.host}"
            files = [(f"{inside}/{p.relative_to(prefix)}", p) for p in prefix.rglob("*") if p.is_file()]
            self.archive(f"{inside}.tar.gz", files + [(f"{inside}/{n}", ROOT / n) for n in LICENSES])

    def deb(self):
        named = {"CACTUS_BUILT": self.target / self.folder / "libcactus_ffi.a"} if self.built else {}
        self.run("sdks/cpp/debian.sh", self.out, CACTUS_PROFILE=self.profile, **named)

    def conan(self):
        """The recipe with what it exports, where it looks for that: `conan create NAME/sdks/cpp` makes the package."""
        name = f"cactus-conan-{self.version}"
        files = ["sdks/cpp/conanfile.py", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", *LICENSES]
        files += self.text("git", "ls-files", "crates", "xtask", "scripts").splitlines()
        self.archive(f"{name}.tar.gz", [(f"{name}/{file}", ROOT / file) for file in files])

    def wheels(self):
        if self.built:
            raise Skipped("wheels are built anew")
        self.run("scripts/build_wheels.sh", self.out, CACTUS_WHEEL_PROFILE=self.profile)

    def npm(self):
        if not self.has("npm"):
            raise Skipped("npm is not installed")
        library = self.prefix() / "lib/libcactus.so"
        self.run("npm", "install", "--prefix", "sdks/node", "--no-audit", "--no-fund", "--no-package-lock", "--silent")
        named = {"CACTUS_LIB_PATH": library, "CACTUS_PREFIX": self.prefix(), "CACTUS_INCLUDE": self.prefix() / "include"}
        self.run("node", "sdks/node/scripts/build.mjs", **named)
        self.run("node", "sdks/node/scripts/pack.mjs", "--out", self.out, **named)
        self.run("node", "sdks/react-native/scripts/pack.mjs", "--out", self.out)

    def web(self):
        """The package for pages, with both modules of WebAssembly."""
        if not self.has("npm"):
            raise Skipped("npm is not installed")
        if not self.built:
            self.run("sdks/web/scripts/build.sh", CACTUS_WEB_PROFILE=self.profile)
        elif not all((ROOT / "sdks/web" / name).exists() for name in ("cactus.wasm", "cactus-fma.wasm", "dist")):
            raise Skipped("sdks/web/scripts/build.sh has not run")
        self.run("npm", "pack", "--silent", "--pack-destination", self.out, "./sdks/web")

    def maven(self):
        if not self.has("javac"):
            raise Skipped("a JDK is not installed")
        place = self.target / "artifacts-maven"
        shutil.rmtree(place, ignore_errors=True)
        libraries = f"{self.prefix()}/lib/libcactus.so,{self.target}/sdks/kotlin/libcactus_jni.so"
        self.run("sdks/kotlin/build.sh")
        self.run("sdks/kotlin/android.sh", place, f"linux-x86_64={libraries}")
        self.archive(f"cactus-engine-maven-{self.version}.tar.gz", [(str(p.relative_to(place)), p) for p in place.rglob("*") if p.is_file()])
        raise Skipped("the jar is there, and no AAR: sdks/kotlin/android.sh makes it of libraries that an NDK has linked")

    def xcframework(self):
        """Static libraries of Apple's systems, which need no linker; a Mac has to sign and try them."""
        if self.built:
            raise Skipped("its libraries are built anew")
        given = []
        for place, target in APPLE.items():
            if not Path(self.text("rustc", "--print", "target-libdir", "--target", target)).is_dir():
                raise Skipped(f"no standard library of {target}; `rustup target add {target}`")
            build = ["cargo", "rustc", "--locked", "--package", "cactus-ffi", "--lib", "--profile", self.profile, "--target", target]
            self.run(*build, "--crate-type", "staticlib", "--no-default-features", "--features", LOCAL)
            given.append(f"{place}={self.target / target / self.folder / 'libcactus_ffi.a'}")
        self.run("python3", "sdks/swift/xcframework.py", self.out, *given)

    def dart(self):
        for name in ("dart", "flutter"):
            inside = f"{'cactus_flutter' if name == 'flutter' else 'cactus_engine'}-{self.version}"
            self.archive(f"{inside}.pub.tar.gz", self.files_below(f"sdks/{name}", inside))

    def swift(self):
        """The package as Swift Package Manager takes it from a repository of its own."""
        name = f"cactus-swift-{self.version}"
        self.archive(f"{name}.tar.gz", self.files_below("sdks/swift", name))

    def crates(self):
        """The sources of all crates, as cargo packs them."""
        self.run("cargo", "package", "--locked", "--workspace", "--no-verify", "--allow-dirty", "--exclude-lockfile", "--quiet")
        packed = sorted((self.target / "package").glob("*.crate"))
        name = f"cactus-crates-{self.version}"
        self.archive(f"{name}.tar.gz", [(f"{name}/{p.name}", p) for p in packed])

    def site(self):
        self.run("python3", "scripts/site.py")
        book = ROOT / "target/site/book"
        if not book.is_dir():
            raise Skipped("mdbook is not installed")
        name = f"cactus-docs-{self.version}"
        self.archive(f"{name}.tar.gz", [(f"{name}/{p.relative_to(book)}", p) for p in book.rglob("*") if p.is_file()])

    # ---- around it

    def prefix(self):
        """An installed library, for the packages that carry one."""
        prefix = self.target / "artifacts-prefix" / "libcactus"
        if not (prefix / "lib/libcactus.so").is_file():
            self.library()
        return prefix

    def check_tag(self, tag):
        if tag.lstrip("v") != self.version:
            raise SystemExit(f"the tag {tag} is not the version {self.version} of Cargo.toml")
        if self.text("git", "rev-parse", f"{tag}^{{commit}}") != self.commit:
            raise SystemExit(f"the checkout is not the commit of the tag {tag}")
        if self.text("git", "status", "--porcelain", "--untracked-files=no"):
            raise SystemExit("the checkout has changes")
        if self.version not in (ROOT / "CHANGELOG.md").read_text():
            raise SystemExit(f"CHANGELOG.md says nothing of {self.version}")

    def check_versions(self):
        """Every SDK has the version of the workspace."""
        places = {
            "sdks/node/package.json": r'"version": "(.+?)"',
            "sdks/react-native/package.json": r'"version": "(.+?)"',
            "sdks/dart/pubspec.yaml": r"^version: (\S+)",
            "sdks/flutter/pubspec.yaml": r"^version: (\S+)",
            "python/pyproject.toml": r'^version = "(.+?)"',
            "sdks/web/package.json": r'"version": "(.+?)"',
        }
        for place, pattern in places.items():
            if (ROOT / place).is_file() and (found := re.search(pattern, (ROOT / place).read_text(), re.M)[1]) != self.version:
                raise SystemExit(f"{place} has the version {found}, Cargo.toml {self.version}")

    def finish(self):
        lines = []
        for path in sorted(p for p in self.out.iterdir() if p.is_file() and p.name not in ("SHA256SUMS", "release.json")):
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
        (self.out / "SHA256SUMS").write_text("\n".join(lines) + "\n")
        about = {"version": self.version, "commit": self.commit, "time": self.time, "files": len(lines)}
        (self.out / "release.json").write_text(json.dumps(about, indent=1) + "\n")
        return lines


STEPS = ["sbom", "program", "library", "deb", "conan", "wheels", "npm", "web", "maven", "xcframework", "swift", "dart", "crates", "site"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(ROOT / "target" / "artifacts"), help="folder, which is made anew")
    parser.add_argument("--only", help=f"some of {', '.join(STEPS)}")
    parser.add_argument("--profile", default="dist", help="cargo's profile")
    parser.add_argument("--built", action="store_true", help="take what is built already")
    parser.add_argument("--tag", help="what has to be checked out")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else STEPS
    if unknown := set(chosen) - set(STEPS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    release = Release(arguments)
    if arguments.tag:
        release.check_tag(arguments.tag)
    release.check_versions()
    shutil.rmtree(release.out, ignore_errors=True)
    release.out.mkdir(parents=True)
    skipped = []
    for step in STEPS:
        if step not in chosen:
            continue
        print(f"==> {step}", file=sys.stderr)
        try:
            getattr(release, step)()
        except Skipped as why:
            skipped.append(f"SKIPPED: {step}: {why}")
    for line in release.finish():
        print(line)
    for line in skipped:
        print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
