"""PDF documents for tests, written by reportlab: `python golden/pdf_documents.py` makes them anew in golden/pdf, with the words that are in them.

`columns.pdf` has two pages in two columns with a title over both, in an embedded TrueType font and in one that every reader has;
`encrypted.pdf` opens with the password `secret` only. Needs the packages reportlab and a font DejaVu Serif."""

from pathlib import Path

from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Frame, FrameBreak, NextPageTemplate, PageTemplate, Paragraph

FOLDER = Path(__file__).parent / "pdf"
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf"
TITLE = "How Bread Is Made in a Cold Kitchen"
PARAGRAPHS = [
    "Flour, water and salt are all that a loaf needs. The flour may be fine or coarse; a coarse one wants more water, and more time to take it up.",
    "Mix everything until no dry flour is left, and let it rest for half an hour. It is difficult to knead a dough that has not rested, and five "
    "minutes are sufficient for one that has.",
    "In a cold kitchen the dough rises slowly. Leave it overnight where it is about fifteen degrees. In the morning it has twice its size, and "
    "smells of beer and apples.",
    "Fold it, shape it, and put it into a basket with a floured cloth. After an hour a finger leaves a dent that fills up slowly: then it is ready.",
    "Heat the oven to two hundred and forty degrees, with a tray in it. Turn the loaf onto the tray, cut it, and pour a cup of water onto the floor "
    "of the oven.",
    "Bake it for forty minutes. After ten of them let the steam out, and turn the heat down a little. It is done if it sounds hollow.",
    "Let it cool on a grid for at least an hour before you cut it. Warm bread tastes of dough, and its crumb sticks to the knife.",
]


def columns() -> None:
    pdfmetrics.registerFont(TTFont("Serif", FONT))
    (width, height), margin, gap, top = A5, 40, 12, 40
    column = (width - 2 * margin - gap) / 2
    plain = {"leftPadding": 0, "rightPadding": 0}
    lefts = [margin, margin + column + gap]
    first = [Frame(margin, height - margin - top, width - 2 * margin, top, **plain)]
    first += [Frame(left, margin, column, height - 2 * margin - top, **plain) for left in lefts]
    rest = [Frame(left, margin, column, height - 2 * margin, **plain) for left in lefts]
    document = BaseDocTemplate(str(FOLDER / "columns.pdf"), pagesize=A5, invariant=1)
    document.addPageTemplates([PageTemplate("first", first), PageTemplate("rest", rest)])
    title = ParagraphStyle("title", fontName="Times-Roman", fontSize=16, leading=20)
    fonts = ["Serif", "Times-Roman"]
    styles = [ParagraphStyle(name, fontName=name, fontSize=10, leading=13, alignment=4, spaceAfter=6) for name in fonts]
    story = [NextPageTemplate("rest"), Paragraph(TITLE, title), FrameBreak()]
    texts = [*PARAGRAPHS, *PARAGRAPHS[1:], *PARAGRAPHS[1:4]]
    story += [Paragraph(text, styles[i % 2]) for i, text in enumerate(texts)]
    document.build(story)
    (FOLDER / "columns.txt").write_text("\n\n".join([TITLE, *texts]) + "\n")


def encrypted() -> None:
    canvas = Canvas(str(FOLDER / "encrypted.pdf"), pagesize=A5, invariant=1, encrypt="secret")
    canvas.drawString(40, 500, "Nobody reads this without the word.")
    canvas.save()


FOLDER.mkdir(exist_ok=True)
columns()
encrypted()
