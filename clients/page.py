"""The chat page in headless Chromium: asking, stopping, editing, by keyboard, on a phone and in the dark, about documents with their sources,
and under a policy with a person's yes. Run by `clients/run.py`, which starts servers and sets CACTUS_URL, whose server has the folder `kitchen`
with the file bread.pdf, and CACTUS_ROUTED_URL. With a folder as argument it leaves screenshots there."""

import os
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

URL = os.environ["CACTUS_URL"]
# A server whose policy hands everything to the other one, with a person's yes.
ROUTED = os.environ["CACTUS_ROUTED_URL"]
SHOTS = Path(sys.argv[1]) if len(sys.argv) > 1 else None
ENDLESS = "Write a very long story about a lighthouse."


def shoot(page, name: str) -> None:
    if SHOTS:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png")


# A microphone that beeps, and nobody asks whether it may be used.
FLAGS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


def opened(browser, problems: list, url: str = URL, **options):
    context = browser.new_context(**options)
    page = context.new_page()
    page.on("console", lambda message: message.type in ("error", "warning") and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: request.url.startswith((url, "data:", f"blob:{url}")) or problems.append(f"elsewhere: {request.url}"))
    page.goto(url)
    expect(page.locator("#model option")).not_to_have_count(0)
    return page


def ask(page, text: str) -> None:
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def ended(page) -> None:
    expect(page.locator("body.running")).to_have_count(0, timeout=120_000)


def pictures(browser, problems: list) -> None:
    """A model that sees gets a button, and pictures go with the next message."""
    page = opened(browser, problems, viewport={"width": 1100, "height": 760})
    page.locator("#model").select_option("smolvlm")
    expect(page.locator("#picture")).to_be_hidden()
    page.locator("#input").focus()
    ask(page, "Hello")
    ended(page)
    # Once it is loaded, the server knows that it sees.
    expect(page.locator("#picture")).to_be_visible()
    file = Path(__file__).resolve().parent.parent / "golden" / "pictures" / "files" / "wide.png"
    page.locator("#pictures").set_input_files([file, file])
    expect(page.locator("#shown img")).to_have_count(2)
    page.locator("#shown button").first.click()
    expect(page.locator("#shown img")).to_have_count(1)
    page.locator("#input").focus()
    ask(page, "What is this?")
    ended(page)
    expect(page.locator(".user .seen img")).to_have_count(1)
    expect(page.locator("#shown img")).to_have_count(0)
    expect(page.locator(".assistant .error")).to_have_count(0)
    shoot(page, "pictures")
    # Editing puts it back; what is no picture is refused.
    page.locator(".user").last.hover()
    page.locator(".user button", has_text="Edit").last.click()
    expect(page.locator("#shown img")).to_have_count(1)
    page.locator("#fresh").click()
    expect(page.locator("#shown img")).to_have_count(0)
    # Of a film, the frames go.
    page.locator("#pictures").set_input_files(file.parents[3] / "crates" / "audio" / "tests" / "files" / "video_and_sound.webm")
    expect(page.locator("#shown img")).to_have_attribute("title", re.compile(r"video_and_sound.webm, a film of \d+ frames"))
    page.locator("#input").focus()
    ask(page, "What happens?")
    ended(page)
    expect(page.locator(".user .seen img[title*=film]")).to_have_count(1)
    expect(page.locator(".assistant .error")).to_have_count(0)
    shoot(page, "films")
    page.locator("#model").select_option(index=0)
    expect(page.locator("#picture")).to_be_hidden()
    page.context.close()


def sounds(browser, problems: list) -> None:
    """A model that hears gets a button, and sounds go with the next message, beside pictures."""
    page = opened(browser, problems, viewport={"width": 1100, "height": 760})
    page.locator("#model").select_option("gemma4_unified")
    page.locator("#input").focus()
    ask(page, "Hello")
    ended(page)
    expect(page.locator("#sound")).to_be_visible()
    golden = Path(__file__).resolve().parent.parent / "golden"
    page.locator("#sounds").set_input_files(golden / "seeing" / "gemma4_unified" / "sound.0.wav")
    page.locator("#pictures").set_input_files(golden / "pictures" / "files" / "wide.png")
    expect(page.locator("#shown audio")).to_have_count(1)
    expect(page.locator("#shown img")).to_have_count(1)
    page.locator("#input").focus()
    ask(page, "What is this?")
    ended(page)
    expect(page.locator(".user .seen audio")).to_have_count(1)
    expect(page.locator(".user .seen img")).to_have_count(1)
    expect(page.locator(".assistant .error")).to_have_count(0)
    shoot(page, "sounds")
    page.locator("#fresh").click()
    page.locator("#model").select_option("smolvlm")
    expect(page.locator("#sound")).to_be_hidden()
    page.context.close()


def consent(browser, problems: list) -> None:
    """Nothing leaves until a person has said yes to this target, and then it is said who answered, why and for how much."""
    page = opened(browser, problems, ROUTED, viewport={"width": 1100, "height": 760})
    page.locator("#model").select_option("auto")
    page.locator("#input").focus()
    ask(page, "What is the capital of France? Answer in one word.")
    ended(page)
    figures = page.locator(".assistant .figures")
    expect(figures.last).to_contain_text("answered here · nothing leaves without your yes")
    host = URL.removeprefix("http://")
    expect(figures.first).to_contain_text(f"text would go to {host}, for at most $")
    shoot(page, "consent")
    page.get_by_role("button", name="Send this conversation to house").click()
    ended(page)
    expect(page.locator(".assistant .body")).to_contain_text("Paris")
    expect(figures).to_contain_text("answered by house · the policy says so · $")
    expect(page.get_by_role("button", name="Send this conversation to house")).to_have_count(0)
    shoot(page, "answered")
    # A yes to one question is none to the next.
    page.locator("#input").focus()
    ask(page, "And of Italy?")
    ended(page)
    expect(page.locator(".assistant").nth(1).locator(".figures").last).to_contain_text("answered here")
    page.context.close()


PDF = Path(__file__).parent.parent / "golden" / "pdf" / "columns.pdf"
# Whatever stands in a document, or is its name, is text.
HOSTILE = {"name": "<img src=x onerror=alert(1)>.md", "mimeType": "text/markdown", "buffer": b"# <b>Tea</b>\n\n<script>alert(1)</script> Green tea is brewed at seventy degrees.\n"}
TURN = """([content, cited]) => {
    turns = [{role: "user", content: "q"}, {role: "assistant", content, cited, sources: [
      {number: 1, filename: "<b>a</b>.pdf", page: 3, lines: [1, 1], headings: [], text: "<i>one</i>"},
      {number: 2, filename: "b.md", page: null, lines: [2, 5], headings: ["B", "C"], text: "two"}]}];
    show();
}"""


def documents(browser, problems: list) -> None:
    """Answers come from a folder of the server or from files of one's own, and say from which place, which can be read."""
    page = opened(browser, problems, viewport={"width": 1100, "height": 760})
    chosen, source = page.locator("#documents"), page.locator("#source")
    expect(chosen.locator("option", has_text="kitchen")).to_have_count(1)
    chosen.select_option(label="kitchen")
    expect(page.locator("#input")).to_have_attribute("placeholder", "Ask about the documents")
    page.locator("#input").focus()
    ask(page, "For how many minutes is the bread baked?")
    ended(page)
    expect(page.locator(".assistant .body")).not_to_be_empty()
    expect(page.locator(".sources button").first).to_contain_text("bread.pdf, page ")
    shoot(page, "documents")
    # By keyboard alone: the source opens and closes.
    page.locator(".sources button").first.focus()
    page.keyboard.press("Enter")
    expect(source).to_be_visible()
    expect(source.locator("h2")).to_have_text("[1] bread.pdf")
    expect(source.locator(".place")).to_contain_text("page ")
    said = " ".join(PDF.with_suffix(".txt").read_text().split())
    assert " ".join(source.locator(".piece").inner_text().split()) in said
    shoot(page, "source")
    page.keyboard.press("Escape")
    expect(source).to_be_hidden()

    # Files of one's own become a store, and those that cannot be read are named.
    page.locator("#files").set_input_files([HOSTILE, {"name": "scan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 nothing"}])
    expect(chosen.locator("option:checked")).to_have_text("<img src=x onerror=alert(1)>.md and 1 more", timeout=60_000)
    expect(page.locator("#note")).to_contain_text("scan.pdf was not read: it is no PDF")
    page.locator("#input").focus()
    ask(page, "At how many degrees is green tea brewed?")
    ended(page)
    texts = []
    for one in page.locator(".assistant").nth(1).locator(".sources button").all():
        one.click()
        texts.append(source.locator(".piece").inner_text())
        page.keyboard.press("Escape")
    assert "seventy" in " ".join(texts), texts
    page.locator(".assistant").nth(1).locator(".sources button").first.click()
    expect(page.locator("#log img, #source img, #source script, #source b, header img")).to_have_count(0)
    page.keyboard.press("Escape")

    # Files are dropped onto the page.
    page.evaluate(
        """(bytes) => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(bytes)], "dropped.pdf"));
            for (const kind of ["dragover", "drop"]) dispatchEvent(new DragEvent(kind, {dataTransfer: files, cancelable: true, bubbles: true}));
        }""",
        list(PDF.read_bytes()),
    )
    expect(chosen.locator("option:checked")).to_have_text("dropped.pdf", timeout=60_000)
    # What was chosen stays over a reload, and nothing chosen is a chat like any other.
    page.reload()
    expect(chosen.locator("option:checked")).to_have_text("dropped.pdf")
    chosen.select_option(label="No documents")
    page.locator("#input").focus()
    ask(page, "What is the capital of France? Answer in one word.")
    ended(page)
    expect(page.locator(".assistant").last.locator(".body")).to_contain_text("Paris")
    expect(page.locator(".assistant").last.locator(".sources")).to_have_count(0)

    # Numbers of sources are buttons; other brackets are text, and what is little supported looks so.
    page.evaluate(TURN, ["One [1]. Two [2, 1], not [7], `[1]`.", [1]])
    body = page.locator(".assistant .body")
    expect(body.locator(".cite")).to_have_text(["1", "2", "1"])
    expect(body.locator(".cite.doubt")).to_have_text(["2"])
    expect(body).to_contain_text("not [7]")
    expect(body.locator("code")).to_have_text("[1]")
    body.locator(".cite").first.click()
    expect(source.locator("h2")).to_have_text("[1] <b>a</b>.pdf")
    expect(source.locator(".place")).to_have_text("page 3")
    expect(source.locator(".piece")).to_have_text("<i>one</i>")
    page.keyboard.press("Escape")
    body.locator(".cite").nth(1).click()
    expect(source.locator(".place")).to_have_text("lines 2–5 · B › C")
    page.keyboard.press("Escape")

    phone = opened(browser, problems, viewport={"width": 390, "height": 780}, color_scheme="dark", has_touch=True)
    phone.evaluate(TURN, ["One [1].", [1]])
    width = phone.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, f"the page is {width} wide"
    shoot(phone, "documents-phone")
    for one in (page, phone):
        one.context.close()


def main() -> None:
    problems = []
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = opened(browser, problems, viewport={"width": 1100, "height": 760})
        shoot(page, "empty")

        # By keyboard alone: the input has the focus.
        ask(page, "What is the capital of France? Answer in one word.")
        ended(page)
        expect(page.locator(".assistant .body")).to_contain_text("Paris")
        expect(page.locator(".assistant .figures")).to_contain_text("token")
        expect(page.locator("#announce")).to_contain_text("Paris")

        # Esc stops, and the page says so.
        ask(page, ENDLESS)
        expect(page.locator(".assistant").nth(1).locator(".body")).to_contain_text(" ", timeout=60_000)
        page.wait_for_timeout(500)
        page.keyboard.press("Escape")
        ended(page)
        expect(page.locator(".assistant .figures").nth(1)).to_contain_text("tokens/s")
        expect(page.locator(".assistant .figures").nth(1)).to_contain_text("stopped")

        # The arrow takes the last question back.
        page.keyboard.press("ArrowUp")
        expect(page.locator("#input")).to_have_value(ENDLESS)
        expect(page.locator(".user")).to_have_count(1)
        page.keyboard.press("Control+A")
        ask(page, "And of Italy?")
        ended(page)
        expect(page.locator(".assistant")).to_have_count(2)
        shoot(page, "chat")

        # What is said is written into the message.
        page.locator("#speak").click()
        expect(page.locator("#speak")).to_have_attribute("aria-pressed", "true")
        page.wait_for_timeout(2_500)
        page.locator("#speak").click()
        expect(page.locator("#input")).not_to_have_value("", timeout=60_000)
        expect(page.locator("#send")).to_be_enabled()
        page.locator("#input").fill("")

        # What was said is there after a reload.
        page.reload()
        expect(page.locator(".user .said").nth(1)).to_have_text("And of Italy?")

        # What a model writes is text, whatever it looks like.
        page.evaluate(
            """() => {
                turns = [{role: "user", content: "<img src=x onerror=alert(1)>"}, {role: "assistant",
                  reasoning_content: "Two lists and a table.", figures: "12 tokens",
                  tool_calls: [{id: "a", type: "function", function: {name: "get_weather", arguments: '{"city":"Bern"}'}}],
                  content: "# Title\\n<script>alert(1)</script> **bold** `code` [link](javascript:alert(1)) [good](http:x)\\n\\n" +
                    "- one\\n  - two\\n- three\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n```python\\nprint('<b>')\\n```"}];
                show();
            }"""
        )
        body = page.locator(".assistant .body")
        expect(body.locator("script, img, a[href^=javascript]")).to_have_count(0)
        expect(body).to_contain_text("<script>alert(1)</script>")
        for selector, count in [("h1", 1), ("strong", 1), ("li", 3), ("ul ul li", 1), ("td", 2), (".code pre", 1), ("a", 1)]:
            expect(body.locator(selector)).to_have_count(count)
        expect(page.locator(".call b")).to_have_text("get_weather")
        expect(page.locator("details")).not_to_have_attribute("open", "")
        shoot(page, "markdown")

        # A phone in the dark.
        phone = opened(browser, problems, viewport={"width": 390, "height": 780}, color_scheme="dark", has_touch=True)
        ask(phone, "What is the capital of France? Answer in one word.")
        ended(phone)
        width = phone.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"the page is {width} wide"
        shoot(phone, "phone")
        documents(browser, problems)
        pictures(browser, problems)
        sounds(browser, problems)
        consent(browser, problems)
        browser.close()
    assert not problems, problems
    print("the page works")


main()
