"""Makes empty stand-ins for the GPU libraries that PyTorch's Linux wheel links to, so that it loads without them.

    python scripts/torch_stand_ins.py

The wheel for Linux on x86-64 wants several gigabytes of GPU libraries when it is imported, although nothing here runs on
a GPU. After an installation without those (`scripts/torch-cpu-overrides.txt`) this writes, beside the wheel's own
libraries, one shared library for each that is missing, which has every symbol that the wheel links to, under the same
version, and does nothing. Needs gcc, readelf and nm. Run again it changes nothing that is there.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

#: Libraries to stand in for, and how symbols without a version begin that belong to them. The small ones that register
#: code when they are loaded (the runtime and its tools) are installed for real.
STAND_INS = {
    "libcublas": r"cublas(?!Lt)",
    "libcublasLt": r"cublasLt",
    "libcudnn": r"cudnn",
    "libcufft": r"cufft",
    "libcusparse": r"cusparse(?!Lt)",
    "libcusparseLt": r"cusparseLt",
    "libnccl": r"p?nccl",
    "libnvrtc": r"nvrtc",
    "libnvshmem_host": r"nvshmem",
}


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def stem(library: str) -> str:
    return library.split(".so")[0]


def wanted(folder: Path) -> tuple[dict[str, dict[str, set[str]]], set[str]]:
    """The libraries that the wheel's own need, with symbols by version; and symbols without a version."""
    libraries: dict[str, dict[str, set[str]]] = {}
    unversioned: set[str] = set()
    for own in sorted(folder.glob("*.so")):
        for needed in re.findall(r"\(NEEDED\).*\[(.+?)\]", output("readelf", "-dW", str(own))):
            if stem(needed) in STAND_INS:
                libraries.setdefault(needed, defaultdict(set))
        owner_of: dict[str, str] = {}
        owner = ""
        for line in output("readelf", "-VW", str(own)).splitlines():
            if found := re.search(r"File: (\S+)", line):
                owner = found[1]
            if found := re.search(r"Name: (\S+)\s+Flags", line):
                owner_of[found[1]] = owner
        for line in output("nm", "-D", "--undefined-only", str(own)).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            version = version.lstrip("@")
            if not version:
                unversioned.add(symbol)
            elif (library := owner_of.get(version)) in libraries:
                libraries[library][version].add(symbol)
    return libraries, unversioned


def make(path: Path, versions: dict[str, set[str]], unversioned: set[str]) -> int:
    """Compiles a stand-in; gives the number of its symbols."""
    plain = set() if versions else {s for s in unversioned if re.match(STAND_INS[stem(path.name)], s)}
    symbols = sorted(plain.union(*versions.values()))
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stand_in.c"), Path(folder, "versions.map")
        source.write_text("".join(f"long {s}(void) {{ return 1; }}\n" for s in symbols) or "static int nothing;\n")
        command = ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", "-o", str(path), str(source)]
        if versions:
            blocks = (f"{version} {{ global: {'; '.join(sorted(names))}; }};\n" for version, names in versions.items())
            script.write_text("".join(blocks))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)
    return len(symbols)


def main() -> int:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        print("torch is not installed for this Python", file=sys.stderr)
        return 1
    folder = Path(found.origin).parent / "lib"
    libraries, unversioned = wanted(folder)
    for name, versions in sorted(libraries.items()):
        path = folder / name
        if not path.exists():
            print(f"{name}: {make(path, versions, unversioned)} symbols")
    return 0


if __name__ == "__main__":
    sys.exit(main())
