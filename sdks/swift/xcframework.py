#!/usr/bin/env python3
"""Packs static libraries of Cactus into an xcframework, without Xcode.

    sdks/swift/xcframework.py OUT ios/arm64=LIB ios-simulator/arm64=LIB macos/arm64=LIB macos/x86_64=LIB

Each LIB is a `libcactus.a` that was built for that system and processor. OUT gets `CCactus.xcframework`, `CCactus.xcframework.zip` and
`CCactus.xcframework.zip.sha256`. The same libraries give the same zip. Several processors of one system become one universal library.

Before that, every object in every library is looked at: it has to be for the system and processor that it is given as, must not want a later
system than the package promises (iOS 14, macOS 11), and together they have to define every function of `cactus.h`.

    --release URL    writes URL and checksum into Package.swift
"""

from __future__ import annotations

import argparse
import hashlib
import plistlib
import re
import shutil
import struct
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = HERE / "Sources" / "CCactus" / "include"
NAME = "CCactus.xcframework"
LIBRARY = "libcactus.a"


class Platform:
    """A system: its number in Mach-O, its names in an xcframework, and the earliest version that is promised."""

    def __init__(self, number: int, system: str, variant: str | None, oldest: tuple[int, int], minimum_command: int):
        self.number = number
        self.system = system
        self.variant = variant
        self.oldest = oldest
        #: The load command that older compilers write in place of LC_BUILD_VERSION.
        self.minimum_command = minimum_command


PLATFORMS = {
    "ios": Platform(2, "ios", None, (14, 0), 0x25),
    "ios-simulator": Platform(7, "ios", "simulator", (14, 0), 0x25),
    "macos": Platform(1, "macos", None, (11, 0), 0x24),
}
PROCESSORS = {"arm64": (0x0100000C, 0), "x86_64": (0x01000007, 3)}

MAGIC_64 = 0xFEEDFACF
LC_SYMTAB = 0x2
LC_BUILD_VERSION = 0x32
N_STAB, N_TYPE, N_EXT, N_SECT, N_PEXT = 0xE0, 0x0E, 0x01, 0x0E, 0x10


class Wrong(Exception):
    """A library that cannot be packed."""


def members(data: bytes, path: Path) -> list[tuple[str, bytes]]:
    """The objects in an archive of ar, in BSD's or GNU's form."""
    if not data.startswith(b"!<arch>\n"):
        raise Wrong(f"{path}: expected a static library, found {data[:8]!r}")
    found, names, at = [], b"", 8
    while at + 60 <= len(data):
        head = data[at : at + 60]
        if head[58:60] != b"`\n":
            raise Wrong(f"{path}: byte {at}: expected a member of the archive")
        size = int(head[48:58])
        name, body = head[:16].decode("latin-1").rstrip(), data[at + 60 : at + 60 + size]
        if len(body) < size:
            raise Wrong(f"{path}: it is cut off in the member {name}")
        at += 60 + size + size % 2
        if name.startswith("#1/"):
            length = int(name[3:])
            name, body = body[:length].rstrip(b"\0").decode("utf-8", "replace"), body[length:]
        elif name == "//":
            names = body
            continue
        elif re.fullmatch(r"/[0-9]+", name):
            name = names[int(name[1:]) :].split(b"\n")[0].rstrip(b"/").decode("utf-8", "replace")
        if name.rstrip("/") in ("", "/SYM64", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64"):
            continue
        found.append((name.rstrip("/"), body))
    return found


class Object:
    """What the load commands of a Mach-O file say."""

    def __init__(self, data: bytes, where: str):
        if len(data) < 32 or struct.unpack_from("<I", data)[0] != MAGIC_64:
            raise Wrong(f"{where}: expected a 64-bit Mach-O file")
        _, self.cpu, _, _, count, _, _, _ = struct.unpack_from("<8I", data)
        self.platforms: list[tuple[int | None, int, tuple[int, int]]] = []
        self.defined: set[str] = set()
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<2I", data, at)
            if size < 8 or at + size > len(data):
                raise Wrong(f"{where}: a load command goes beyond the file")
            if command == LC_BUILD_VERSION:
                platform, minimum = struct.unpack_from("<2I", data, at + 8)
                self.platforms.append((platform, command, (minimum >> 16, minimum >> 8 & 0xFF)))
            elif command in (0x24, 0x25):
                (minimum,) = struct.unpack_from("<I", data, at + 8)
                self.platforms.append((None, command, (minimum >> 16, minimum >> 8 & 0xFF)))
            elif command == LC_SYMTAB:
                self._symbols(data, *struct.unpack_from("<4I", data, at + 8))
            at += size

    def _symbols(self, data: bytes, first: int, count: int, strings: int, _length: int) -> None:
        for i in range(count):
            name, kind = struct.unpack_from("<IB", data, first + 16 * i)
            if kind & N_STAB or kind & N_PEXT or not kind & N_EXT or kind & N_TYPE != N_SECT:
                continue
            start = strings + name
            self.defined.add(data[start : data.index(b"\0", start)].decode("utf-8", "replace"))


def functions() -> list[str]:
    """The functions of the header."""
    text = re.sub(r"/\*.*?\*/", "", (HEADERS / "cactus.h").read_text(), flags=re.DOTALL)
    found = re.findall(r"^[a-z][\w \*]*?\b(cactus_\w+)\(", text, flags=re.MULTILINE)
    return [name for name in dict.fromkeys(found) if not name.endswith("_t")]


def checked(path: Path, platform: Platform, processor: str) -> bytes:
    """A library that is what it is given as."""
    data = path.read_bytes()
    objects = members(data, path)
    if not objects:
        raise Wrong(f"{path}: there is nothing in it")
    defined: set[str] = set()
    known = False
    for name, body in objects:
        where = f"{path}({name})"
        found = Object(body, where)
        if found.cpu != PROCESSORS[processor][0]:
            raise Wrong(f"{where}: expected the processor {processor}, found number {found.cpu:#x}")
        for number, command, minimum in found.platforms:
            known = True
            if number is None and command != platform.minimum_command or number not in (None, platform.number):
                found_number = command if number is None else number
                raise Wrong(f"{where}: expected the platform {platform.number}, found {found_number}")
            if minimum > platform.oldest:
                raise Wrong(f"{where}: it wants version {minimum[0]}.{minimum[1]}, and {platform.oldest[0]}.{platform.oldest[1]} is promised")
        defined |= found.defined
    if not known:
        raise Wrong(f"{path}: no object says which system it is for")
    missing = [name for name in functions() if f"_{name}" not in defined]
    if missing:
        raise Wrong(f"{path}: it does not define {', '.join(missing[:5])}{' and others' if missing[5:] else ''}")
    return data


def universal(libraries: dict[str, bytes]) -> bytes:
    """One file for several processors; of one processor, its library as it is."""
    if len(libraries) == 1:
        return next(iter(libraries.values()))
    alignment = 3
    head = struct.pack(">2I", 0xCAFEBABE, len(libraries))
    place = len(head) + 20 * len(libraries)
    body = b""
    for processor, data in sorted(libraries.items()):
        padding = -(place + len(body)) % (1 << alignment)
        body += b"\0" * padding
        head += struct.pack(">5I", *PROCESSORS[processor], place + len(body), len(data), alignment)
        body += data
    return head + body


def pack(out: Path, given: dict[str, dict[str, bytes]]) -> Path:
    """Writes the xcframework."""
    folder = out / NAME
    shutil.rmtree(folder, ignore_errors=True)
    libraries = []
    for name, slices in sorted(given.items()):
        platform = PLATFORMS[name]
        processors = sorted(slices)
        identifier = f"{platform.system}-{'_'.join(processors)}" + (f"-{platform.variant}" if platform.variant else "")
        # In a folder of their own, because the headers of all libraries of an application come to lie in one folder.
        headers = folder / identifier / "Headers" / "CCactus"
        headers.mkdir(parents=True)
        (folder / identifier / LIBRARY).write_bytes(universal(slices))
        for file in ("cactus.h", "module.modulemap"):
            shutil.copyfile(HEADERS / file, headers / file)
        library = {
            "BinaryPath": LIBRARY,
            "HeadersPath": "Headers",
            "LibraryIdentifier": identifier,
            "LibraryPath": LIBRARY,
            "SupportedArchitectures": processors,
            "SupportedPlatform": platform.system,
        }
        if platform.variant:
            library["SupportedPlatformVariant"] = platform.variant
        libraries.append(library)
    about = {"AvailableLibraries": libraries, "CFBundlePackageType": "XFWK", "XCFrameworkFormatVersion": "1.0"}
    with open(folder / "Info.plist", "wb") as file:
        plistlib.dump(about, file, sort_keys=True)
    return folder


def zipped(folder: Path) -> tuple[Path, str]:
    """A zip without times and owners, and its checksum."""
    path = folder.with_name(folder.name + ".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*"), key=lambda file: file.relative_to(folder).as_posix()):
            if file.is_dir():
                continue
            entry = zipfile.ZipInfo(f"{folder.name}/{file.relative_to(folder).as_posix()}", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, file.read_bytes(), compresslevel=9)
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{checksum}  {path.name}\n")
    return path, checksum


def release(url: str, checksum: str, manifest: Path) -> None:
    """Writes where a release is into the manifest of the package."""
    text = manifest.read_text()
    line = f'let released: (url: String, checksum: String)? = ("{url}", "{checksum}")'
    text, count = re.subn(r"^let released: .*$", lambda _: line, text, flags=re.MULTILINE)
    if count != 1:
        raise Wrong(f"{manifest}: expected one line `let released: …`, found {count}")
    manifest.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("libraries", nargs="+", metavar="SYSTEM/PROCESSOR=LIB")
    parser.add_argument("--release", metavar="URL")
    parser.add_argument("--manifest", type=Path, default=HERE / "Package.swift", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    given: dict[str, dict[str, bytes]] = {}
    try:
        for each in arguments.libraries:
            found = re.fullmatch(r"([a-z-]+)/([a-z0-9_]+)=(.+)", each)
            if found is None or found[1] not in PLATFORMS or found[2] not in PROCESSORS:
                systems, processors = ", ".join(PLATFORMS), ", ".join(PROCESSORS)
                raise Wrong(f"`{each}`: expected SYSTEM/PROCESSOR=LIB, of the systems {systems} and the processors {processors}")
            slices = given.setdefault(found[1], {})
            if found[2] in slices:
                raise Wrong(f"`{each}`: there is a library for that already")
            slices[found[2]] = checked(Path(found[3]), PLATFORMS[found[1]], found[2])
        arguments.out.mkdir(parents=True, exist_ok=True)
        path, checksum = zipped(pack(arguments.out, given))
        if arguments.release:
            release(arguments.release, checksum, arguments.manifest)
    except (Wrong, OSError) as error:
        print(f"xcframework: {error}", file=sys.stderr)
        return 1
    print(f"{checksum}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
