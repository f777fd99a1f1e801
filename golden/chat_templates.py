#!/usr/bin/env python3
"""Render the golden chat templates with Python's transformers.

    golden/chat_templates.py [--templates FOLDER] [--out FILE]

Reads `cases.json` and every `*.jinja` of the folder (default: golden/chat_templates) and writes
`expected.json`: for each template and case the rendered text, or the message of the exception.
The clock that `strftime_now` reads stands at 2024-07-26 13:05:09.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)
HERE = Path(__file__).resolve().parent / "chat_templates"


def render(template: str, case: dict, special_tokens: dict) -> dict:
    try:
        # The compiled template is cached, so this is the environment that renders below.
        environment = _compile_jinja_template(template).environment
        environment.globals["strftime_now"] = NOW.strftime
        rendered, _ = render_jinja_template(
            conversations=[case["messages"]],
            tools=case.get("tools"),
            documents=case.get("documents"),
            chat_template=template,
            continue_final_message=case.get("continue_final_message", False),
            add_generation_prompt=case.get("add_generation_prompt", False),
            **(special_tokens | case.get("variables", {})),
        )
        return {"text": rendered[0]}
    except Exception as error:  # The templates raise whatever they like.
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", type=Path, default=HERE)
    parser.add_argument("--out", type=Path, default=HERE / "expected.json")
    arguments = parser.parse_args()
    given = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    expected = {}
    for path in sorted(arguments.templates.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        expected[path.stem] = {
            name: render(template, case, given["special_tokens"]) for name, case in given["cases"].items()
        }
    text = json.dumps(expected, ensure_ascii=False, indent=1)
    arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
