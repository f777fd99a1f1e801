#!/usr/bin/env python3
"""The documentation as a site: every page of this repository with a search, made by mdBook.

    python3 scripts/site.py            checks every link, and builds target/site/book where mdBook is installed
    python3 scripts/site.py --check    checks the links alone; needs nothing but Python
    python3 scripts/site.py --strict   fails where mdBook is not installed

Pages stay where they are, so that links work in a checkout, too. The table of contents is made of the tables of docs/README.md and
sdks/README.md. `scripts/setup.sh --ci` installs mdBook beside Python in .venv, and `cargo install --locked mdbook` anywhere.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "target" / "site"
#: A link of Markdown, or a picture: its text and its destination.
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
BOOK = """[book]
title = "Cactus"
language = "en"
src = "src"

[build]
build-dir = "book"
create-missing = false

[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
smart-punctuation = false

[output.html.search]
enable = true
limit-results = 30
use-boolean-and = true
boost-title = 2
"""


def tracked() -> list[str]:
    found = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in found.stdout.splitlines() if (ROOT / name).is_file()]


def prose(text: str) -> str:
    """A page without code, in which brackets are no links."""
    return CODE.sub("``", FENCE.sub("", text))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and mdBook make it."""
    heading = LINK.sub(r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(text: str) -> set[str]:
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", FENCE.sub("", text), re.M):
        name, number = slug(heading), 0
        while (unique := name if number == 0 else f"{name}-{number}") in found:
            number += 1
        found.add(unique)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def links(text: str):
    """Destinations of relative links, each with its line."""
    for number, line in enumerate(prose_lines(text), 1):
        for match in LINK.finditer(line):
            if not re.match(r"[a-z][a-z0-9+.-]*:", match[2]):
                yield number, match[2]


def prose_lines(text: str):
    inside = False
    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            inside = not inside
            yield ""
        else:
            yield "" if inside else CODE.sub("``", line)


def check(pages: dict[str, str], files: set[str]) -> list[str]:
    """What is wrong with the links of all pages."""
    folders = {str(parent) for name in files for parent in Path(name).parents}
    known = {name: anchors(text) for name, text in pages.items()}
    wrong = []
    for name, text in pages.items():
        for number, destination in links(text):
            path, _, anchor = destination.partition("#")
            target = name
            if path:
                try:
                    target = str(((ROOT / name).parent / path).resolve().relative_to(ROOT.resolve()))
                except ValueError:
                    wrong.append(f"{name}:{number}: `{destination}` leads out of the repository")
                    continue
            if target not in files and target not in folders:
                wrong.append(f"{name}:{number}: `{destination}` leads to nothing")
            elif anchor and target in known and anchor not in known[target]:
                wrong.append(f"{name}:{number}: `{destination}`: {target} has no heading `{anchor}`")
    return wrong


def contents(pages: dict[str, str]) -> str:
    """The table of contents: the pages that docs/README.md lists, under its headings, then those of the SDKs."""
    out = ["# Summary", "", "[Cactus](README.md)", ""]
    listed = {"README.md"}

    def entry(title: str, path: str) -> None:
        if path in pages and path not in listed:
            listed.add(path)
            out.append(f"- [{title}]({path})")

    out += ["# First", ""]
    for line in pages["docs/README.md"].splitlines():
        if heading := re.match(r"\*\*(.+?)\*\*", line):
            out.extend(["", f"# {heading[1]}", ""])
        if row := re.match(r"\| *\[([^\]]+)\]\(([^)#]+)\) *\| *(.*?) *\|", line):
            title = f"{row[1]}: {row[3]}" if row[1].isdigit() else row[1]
            entry(title, str((ROOT / "docs" / row[2]).resolve().relative_to(ROOT.resolve())))
    out += ["", "# SDKs", ""]
    entry("What all have in common", "sdks/README.md")
    for name in sorted(pages):
        if match := re.match(r"sdks/([\w-]+)/(\w+)\.md$", name):
            entry(title_of(pages[name], name), name)
    rest = [name for name in sorted(pages) if name not in listed]
    out += ["", "# Also", ""]
    for name in rest:
        entry(title_of(pages[name], name), name)
    return "\n".join(out) + "\n"


def title_of(text: str, name: str) -> str:
    heading = re.search(r"^# +(.*)$", text, re.M)
    return heading[1].replace("[", "").replace("]", "") if heading else name


def stage(pages: dict[str, str], files: set[str]) -> None:
    """Pages, and what they show, in a folder of their own; mdBook calls a README the index of its folder."""
    source = SITE / "src"
    shutil.rmtree(SITE, ignore_errors=True)
    shown = set(pages)
    for name, text in pages.items():
        for _, destination in links(text):
            target = ((ROOT / name).parent / destination.partition("#")[0]).resolve()
            if target.is_file():
                shown.add(str(target.relative_to(ROOT.resolve())))
    for name in shown & files:
        place = source / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)
    (source / "SUMMARY.md").write_text(contents(pages))
    (SITE / "book.toml").write_text(BOOK)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check the links alone")
    parser.add_argument("--strict", action="store_true", help="fail where mdBook is not installed")
    arguments = parser.parse_args()
    files = set(tracked())
    # What is there for tests is no page.
    apart = re.compile(r"golden/|crates/[^/]+/tests/|fuzz/|.*/examples/.*\.md$|benches/texts/|crates/.*/text/(?!calibration)")
    pages = {name: (ROOT / name).read_text() for name in sorted(files) if name.endswith(".md") and not apart.match(name)}
    pages |= {name: (ROOT / name).read_text() for name in files if name in ("golden/README.md", "fuzz/README.md")}
    wrong = check(pages, files)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    print(f"the links of {len(pages)} pages lead somewhere", file=sys.stderr)
    if arguments.check:
        return 0
    beside = [str(Path(sys.executable).parent), str(ROOT / ".venv" / "bin"), os.environ.get("PATH", "")]
    mdbook = shutil.which("mdbook", path=os.pathsep.join(beside))
    if not mdbook:
        print("SKIPPED: mdbook is not installed; `cargo install --locked mdbook` installs it", file=sys.stderr)
        return 1 if arguments.strict else 0
    stage(pages, files)
    subprocess.run([mdbook, "build", str(SITE)], check=True)
    print(f"the site is in {(SITE / 'book').relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
