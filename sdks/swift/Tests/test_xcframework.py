"""What `xcframework.py` packs and refuses, with small libraries that clang makes for Apple's systems.

It runs where clang, llvm-ar and llvm-objdump are; those of Swift's toolchain do.
"""

import hashlib
import os
import plistlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import xcframework  # noqa: E402

TOOLS = os.environ.get("CACTUS_LLVM_TOOLS", "/usr/libexec/swift/bin")


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if found is None:
        raise unittest.SkipTest(f"{name} is not installed")
    return found


def run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


class Packing(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp(prefix="cactus-xcframework-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.source = cls.folder / "all.c"
        cls.source.write_text("".join(f"void {name}(void) {{}}\n" for name in xcframework.functions()))

    def library(self, target: str, source: Path | None = None, form: str = "darwin") -> Path:
        source = source or self.source
        path = self.folder / f"{target}-{form}-{source.stem}.a"
        if not path.exists():
            made = path.with_suffix(".o")
            run(tool("clang"), "-target", target, "-c", source, "-o", made)
            run(tool("llvm-ar"), f"--format={form}", "rcsD", path, made)
        return path

    def all(self) -> list[str]:
        return [
            f"ios/arm64={self.library('arm64-apple-ios14.0')}",
            f"ios-simulator/arm64={self.library('arm64-apple-ios14.0-simulator')}",
            f"ios-simulator/x86_64={self.library('x86_64-apple-ios14.0-simulator')}",
            f"macos/arm64={self.library('arm64-apple-macos11.0')}",
            f"macos/x86_64={self.library('x86_64-apple-macos11.0')}",
        ]

    def pack(self, name: str, *arguments: str) -> tuple[int, str, Path]:
        out = self.folder / name
        done = subprocess.run([sys.executable, HERE.parent / "xcframework.py", out, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr, out

    def test_slices_have_their_systems_processors_and_headers(self) -> None:
        code, said, out = self.pack("whole", *self.all())
        self.assertEqual(code, 0, said)
        folder = out / "CCactus.xcframework"
        about = plistlib.loads((folder / "Info.plist").read_bytes())
        self.assertEqual((about["CFBundlePackageType"], about["XCFrameworkFormatVersion"]), ("XFWK", "1.0"))
        found = {each["LibraryIdentifier"]: each for each in about["AvailableLibraries"]}
        self.assertEqual(set(found), {"ios-arm64", "ios-arm64_x86_64-simulator", "macos-arm64_x86_64"})
        self.assertEqual(found["ios-arm64_x86_64-simulator"]["SupportedPlatformVariant"], "simulator")
        self.assertNotIn("SupportedPlatformVariant", found["ios-arm64"])
        for identifier, each in found.items():
            library = folder / identifier / each["LibraryPath"]
            headers = folder / identifier / each["HeadersPath"] / "CCactus"
            self.assertEqual(sorted(file.name for file in headers.iterdir()), ["cactus.h", "module.modulemap"])
            # Another tool reads the same in it.
            for processor in each["SupportedArchitectures"]:
                heads = run(tool("llvm-objdump"), "--macho", f"--arch={processor}", "--private-headers", library)
                self.assertIn("LC_BUILD_VERSION", heads)
                self.assertIn("minos 11.0" if identifier.startswith("macos") else "minos 14.0", heads)
        run(tool("plutil"), "-lint", folder / "Info.plist")

    def test_the_same_libraries_give_the_same_zip_and_swift_counts_its_checksum_alike(self) -> None:
        sums = []
        for name, order in (("first", self.all()), ("second", list(reversed(self.all())))):
            code, said, out = self.pack(name, *order)
            self.assertEqual(code, 0, said)
            path = out / "CCactus.xcframework.zip"
            sums.append(hashlib.sha256(path.read_bytes()).hexdigest())
            self.assertEqual((out / "CCactus.xcframework.zip.sha256").read_text(), f"{sums[-1]}  {path.name}\n")
            with zipfile.ZipFile(path) as archive:
                self.assertTrue(all(name.startswith("CCactus.xcframework/") for name in archive.namelist()))
        self.assertEqual(sums[0], sums[1])
        if shutil.which("swift"):
            self.assertEqual(run("swift", "package", "compute-checksum", path).strip(), sums[0])

    def test_a_program_finds_the_module_in_the_headers(self) -> None:
        code, said, out = self.pack("module", self.all()[0])
        self.assertEqual(code, 0, said)
        program = self.folder / "program.m"
        program.write_text("@import CCactus;\nint version(void) { return (int)cactus_abi_version(); }\n")
        headers = out / "CCactus.xcframework" / "ios-arm64" / "Headers"
        run(tool("clang"), "-target", "arm64-apple-ios14.0", "-ffreestanding", "-fmodules", f"-fmodules-cache-path={self.folder}/modules", "-fsyntax-only", "-I", headers, program)  # fmt: skip

    def test_the_privacy_manifest_says_what_the_library_uses(self) -> None:
        path = HERE.parent / "Sources" / "Cactus" / "PrivacyInfo.xcprivacy"
        run(tool("plutil"), "-lint", path)
        about = plistlib.loads(path.read_bytes())
        reasons = {each["NSPrivacyAccessedAPIType"]: each["NSPrivacyAccessedAPITypeReasons"] for each in about["NSPrivacyAccessedAPITypes"]}
        prefix = "NSPrivacyAccessedAPICategory"
        wanted = {f"{prefix}FileTimestamp": ["C617.1", "0A2A.1"], f"{prefix}SystemBootTime": ["35F9.1"], f"{prefix}DiskSpace": ["E174.1"]}
        self.assertEqual(reasons, wanted)
        self.assertIs(about["NSPrivacyTracking"], False)

    def test_archives_in_the_form_of_gnu_are_read(self) -> None:
        code, said, _ = self.pack("gnu", f"ios/arm64={self.library('arm64-apple-ios14.0', form='gnu')}")
        self.assertEqual(code, 0, said)

    def test_a_release_is_written_into_the_manifest(self) -> None:
        manifest = self.folder / "Package.swift"
        shutil.copyfile(HERE.parent / "Package.swift", manifest)
        code, said, _ = self.pack("release", self.all()[0], "--release", "https://example.org/a.zip", "--manifest", str(manifest))
        self.assertEqual(code, 0, said)
        self.assertIn(f'= ("https://example.org/a.zip", "{said.split()[0]}")\n', manifest.read_text())

    def test_what_does_not_fit_is_refused_and_says_why(self) -> None:
        few = self.folder / "few.c"
        few.write_text("void cactus_version(void) {}\n")
        hidden = self.folder / "hidden.c"
        hidden.write_text(self.source.read_text().replace("void cactus_version", '__attribute__((visibility("hidden"))) void cactus_version'))
        text, cut = self.folder / "text.a", self.folder / "cut.a"
        text.write_text("no library")
        cut.write_bytes(self.library("arm64-apple-ios14.0").read_bytes()[:-40])
        simulator, late = self.library("arm64-apple-ios14.0-simulator"), self.library("arm64-apple-ios17.0")
        linux = self.library("aarch64-linux-gnu", form="gnu")
        for library, words in (
            (f"ios/arm64={simulator}", "expected the platform 2, found 7"),
            (f"ios-simulator/arm64={self.library('arm64-apple-ios14.0')}", "expected the platform 7, found 2"),
            (f"macos/arm64={self.library('arm64-apple-ios14.0')}", "expected the platform 1, found 2"),
            (f"macos/x86_64={self.library('arm64-apple-macos11.0')}", "expected the processor x86_64"),
            (f"ios/arm64={late}", "it wants version 17.0, and 14.0 is promised"),
            (f"ios/arm64={linux}", "expected a 64-bit Mach-O file"),
            (f"ios/arm64={self.library('arm64-apple-ios14.0', source=few)}", "it does not define cactus_abi_version"),
            (f"ios/arm64={self.library('arm64-apple-ios14.0', source=hidden)}", "it does not define cactus_version"),
            (f"ios/arm64={text}", "expected a static library"),
            (f"ios/arm64={cut}", "it is cut off"),
            (f"ios/arm64={self.folder}/absent.a", "absent.a"),
            ("tvos/arm64=x", "of the systems ios, ios-simulator, macos"),
        ):
            code, said, _ = self.pack("refused", library)
            self.assertEqual(code, 1, library)
            self.assertIn(words, said, library)
        twice = f"ios/arm64={self.library('arm64-apple-ios14.0')}"
        self.assertIn("there is a library for that already", self.pack("twice", twice, twice)[1])


if __name__ == "__main__":
    unittest.main()
