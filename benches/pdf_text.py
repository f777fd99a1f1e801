"""How much of the text of PDFs comes out of `cactus extract-pdf`, beside pypdf and pdfminer.six: F1 of words, and of pairs of neighboring
words, which says whether they come in order.

    python -m venv v && v/bin/pip install reportlab fpdf2 uharfbuzz matplotlib pypdf pdfminer.six
    v/bin/python benches/pdf_text.py --cactus target/release/cactus

The documents are made here of the guides in docs/guides, so what they say is known: with reportlab (one, two and three columns, standard and
embedded fonts, a table), fpdf2 (shaped, with ligatures), matplotlib (Type 3 and Type 42 fonts), and Chromium, if it is there (two columns with
hyphens). `--more FOLDER` compares PDFs of yours with what pypdf says of them."""

import argparse
import html
import json
import logging
import re
import shutil
import subprocess
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FONTS = Path("/usr/share/fonts/truetype/dejavu")
TITLE = "A Title Across the Whole Page About Speech and Policies"
LIGATURES = (
    "The office staff offered an efficient and sufficient flow of five fine figures; the final affidavit confirms a different, difficult fjord."
)


def prose() -> list[str]:
    """Paragraphs of the guides, without what is code, a table or a mark."""
    text = "".join((ROOT / "docs" / "guides" / f"{name}.md").read_text() for name in ("transcribe", "hybrid"))
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    found = [re.sub(r"[\[\]`*#>]|\(http[^)]*\)|\([^)]*\.md[^)]*\)", "", part) for part in text.split("\n\n")]
    found = [re.sub(r"\s+", " ", part).strip() for part in found]
    # The standard fonts have no more letters.
    found = [part for part in found if len(part) > 120 and "|" not in part and all(ord(c) < 256 for c in part)]
    return [*found[:3], LIGATURES, *found[3:25]]


def reportlab(path: Path, paragraphs: list[str], font: str, columns: int, align: int, table: bool = False) -> str:
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.platypus import BaseDocTemplate, Frame, FrameBreak, NextPageTemplate, PageTemplate, Paragraph, Table

    pdfmetrics.registerFont(TTFont("DejaVu", str(FONTS / "DejaVuSerif.ttf")))
    style = ParagraphStyle("text", fontName=font, fontSize=10, leading=12.5, alignment=align, spaceAfter=6)
    (width, height), margin, gap, top = A4, 50, 14, 60
    column = (width - 2 * margin - gap * (columns - 1)) / columns
    plain = {"leftPadding": 0, "rightPadding": 0}
    lefts = [margin + i * (column + gap) for i in range(columns)]
    first = [Frame(margin, height - margin - top, width - 2 * margin, top, **plain)]
    first += [Frame(left, margin, column, height - 2 * margin - top, **plain) for left in lefts]
    rest = [Frame(left, margin, column, height - 2 * margin, **plain) for left in lefts]
    document = BaseDocTemplate(str(path), pagesize=A4)
    document.addPageTemplates([PageTemplate("first", first), PageTemplate("rest", rest)])
    title = ParagraphStyle("title", fontName=font, fontSize=18, leading=24)
    story, said = [NextPageTemplate("rest"), Paragraph(TITLE, title), FrameBreak()], [TITLE]
    for i, text in enumerate(paragraphs):
        story.append(Paragraph(html.escape(text), style))
        said.append(text)
        if table and i % 6 == 2:
            rows = [["Name", "Count", "Share of all", "Note"]]
            rows += [[f"row {i}-{j}", str(37 * j + i), f"{j / 7:.2f}", "kept" if j % 2 else "left out"] for j in range(5)]
            story.append(Table(rows))
            said += [" ".join(row) for row in rows]
    document.build(story)
    return "\n".join(said)


def fpdf2(path: Path, paragraphs: list[str], font: str, shaped: bool) -> str:
    from fpdf import FPDF

    pdf = FPDF()
    pdf.add_page()
    pdf.add_font("X", "", str(FONTS / font))
    pdf.set_font("X", size=11)
    if shaped:
        pdf.set_text_shaping(True)
    for text in paragraphs:
        pdf.multi_cell(0, 6, text, align="J")
        pdf.ln(3)
    pdf.output(str(path))
    return "\n".join(paragraphs)


def matplotlib(path: Path, paragraphs: list[str], kind: int) -> str:
    import matplotlib as library

    library.use("pdf")
    import matplotlib.pyplot as plt

    library.rcParams["pdf.fonttype"] = kind
    figure, y = plt.figure(figsize=(8.3, 11.7)), 0.96
    said = [text.replace("$", "") for text in paragraphs[:9]]
    for text in said:
        for line in textwrap.wrap(text, 95, break_on_hyphens=False):
            figure.text(0.08, y, line, fontsize=9)
            y -= 0.014
        y -= 0.012
    figure.savefig(path)
    plt.close(figure)
    return "\n".join(said)


def chromium(path: Path, paragraphs: list[str], style: str) -> str:
    page = path.with_suffix(".html")
    body = "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs)
    page.write_text(f'<html lang=en><body style="font: 12px DejaVu Serif"><h1>{TITLE}</h1><div style="{style}">{body}</div></body></html>')
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={path}", page]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=True)
    return "\n".join([TITLE, *paragraphs])


def documents(folder: Path) -> dict[Path, str]:
    paragraphs, made = prose(), {}
    cases = {
        "one column, standard font": lambda path: reportlab(path, paragraphs, "Times-Roman", 1, 4),
        "one column with tables": lambda path: reportlab(path, paragraphs, "Helvetica", 1, 0, True),
        "one column, embedded font": lambda path: reportlab(path, paragraphs, "DejaVu", 1, 4),
        "two columns": lambda path: reportlab(path, paragraphs, "Times-Roman", 2, 4),
        "two ragged columns": lambda path: reportlab(path, paragraphs, "DejaVu", 2, 0),
        "three columns": lambda path: reportlab(path, paragraphs, "Helvetica", 3, 4),
        "justified by fpdf2": lambda path: fpdf2(path, paragraphs, "DejaVuSans.ttf", False),
        "shaped, with ligatures": lambda path: fpdf2(path, paragraphs, "DejaVuSerif.ttf", True),
        "Type 3 fonts": lambda path: matplotlib(path, paragraphs, 3),
        "Type 42 fonts": lambda path: matplotlib(path, paragraphs, 42),
    }
    if shutil.which("chromium"):
        columns = "column-count: 2; column-gap: 18px; text-align: justify; hyphens: auto"
        cases["Chromium, one column"] = lambda path: chromium(path, paragraphs, "")
        cases["Chromium, two columns, hyphens"] = lambda path: chromium(path, paragraphs, columns)
    for name, make in cases.items():
        path = folder / f"{name}.pdf"
        made[path] = make(path)
    return made


def tools(cactus: Path) -> dict:
    import pypdf
    from pdfminer.high_level import extract_text

    logging.disable(logging.CRITICAL)

    def own(path: Path) -> str:
        lines = subprocess.run([cactus, "extract-pdf", path], capture_output=True, check=True, text=True).stdout.splitlines()
        return "\n".join(json.loads(line).get("text", "") for line in lines)

    return {
        "cactus": own,
        "pypdf": lambda path: "\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages),
        "pdfminer.six": lambda path: extract_text(path),
    }


def f1(found: list, expected: list) -> float:
    found, expected = Counter(found), Counter(expected)
    same = sum((found & expected).values())
    return 100 * 2 * same / max(1, sum(found.values()) + sum(expected.values()))


def scores(found: str, expected: str) -> tuple[float, float]:
    words = [re.findall(r"\w+", text.lower()) for text in (found, expected)]
    pairs = [list(zip(some, some[1:])) for some in words]
    return f1(*words), f1(*pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cactus", type=Path, default=ROOT / "target" / "release" / "cactus")
    parser.add_argument("--more", type=Path)
    args = parser.parse_args()
    read, took, all_scores = tools(args.cactus), Counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        for path, text in documents(Path(folder)).items():
            row = []
            for name, tool in read.items():
                began = time.perf_counter()
                score = scores(tool(path), text)
                took[name] += time.perf_counter() - began
                all_scores.setdefault(name, []).append(score)
                row.append(f"{name} {score[0]:.1f} / {score[1]:.1f}")
            print(f"{path.stem:32}", "   ".join(row))
    for name, some in all_scores.items():
        means = [sum(column) / len(column) for column in zip(*some)]
        print(f"{name:14} words {means[0]:.1f}, pairs {means[1]:.1f}, {1000 * took[name] / len(some):.0f} ms a document")
    for path in sorted(args.more.glob("*.pdf")) if args.more else []:
        try:
            print(f"{path.stem:32}", "words {:.1f}, pairs {:.1f} of those of pypdf".format(*scores(read["cactus"](path), read["pypdf"](path))))
        except Exception as error:
            print(f"{path.stem:32}", f"left out: {error}")


main()
