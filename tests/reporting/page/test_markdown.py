"""Texts of a submission in a browser: Markdown is rendered, loses no words and stays inert, also if it is hostile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rubric_integrations.runs import RunFile
from tests.reporting.page.runs import Line, own_line
from tests.reporting.page.test_page import EVIL

SAMPLES = [
    (
        "# Title #\n\nsnake_case, 2*3*4 and **bo**ld.\nnext line <tag> &amp;",
        '<p class="h1">Title</p><p>snake_case, 2*3*4 and <strong>bo</strong>ld.<br>next line &lt;tag&gt; &amp;amp;</p>',
    ),
    (
        "1. First:\n\n   ```python\n   def f():\n       return 1\n   ```\n"
        "2. Second\n   - nested *a*\n     - deeper\n\n   more",
        '<ol start="1"><li><p>First:</p><pre tabindex="0"><small>python\n</small>'
        "<code>def f():\n    return 1</code></pre></li>"
        "<li><p>Second</p><ul><li><p>nested <em>a</em></p><ul><li><p>deeper</p></li></ul></li></ul>"
        "<p>more</p></li></ol>",
    ),
    (
        "| a | b \\| c |\n|:--|--:|\n| `x\\|y` | **z** |\n| one |\nafter",
        '<div class="scroll" tabindex="0" role="group" aria-label="Table in the text"><table><thead><tr>'
        '<th scope="col">a</th><th scope="col">b | c</th></tr></thead><tbody><tr><td><code>x|y</code></td>'
        "<td><strong>z</strong></td></tr><tr><td>one</td></tr></tbody></table></div><p>after</p>",
    ),
    (
        "> quote\n> - item\n\n- [x] done\n* * *\n``a`b`` \\*not\\* \\(x_1\\) ***both*** ~~no~~",
        "<blockquote><p>quote</p><ul><li><p>item</p></li></ul></blockquote><ul><li><p>[x] done</p></li></ul><hr>"
        "<p><code>a`b</code> *not* \\(x_1\\) <strong><em>both</em></strong> <s>no</s></p>",
    ),
    (
        '[link *x*](http://a.b/c_d "t") ![alt](http://i/x.png) [j](javascript:alert`1`)',
        '<p>link <em>x</em><small class="address"> http://a.b/c_d</small> [image: alt] '
        '<small class="address">http://i/x.png</small> j<small class="address"> javascript:alert`1`</small></p>',
    ),
    ("```\nnot closed\n# x", '<pre tabindex="0"><code>not closed\n# x</code></pre>'),
    ("*a*\u202eb\u200bc\U000e0041", "<p><em>a</em>" + "".join(
        f'<span class="unseen">U+{code}</span>{text}' for code, text in (("202E", "b"), ("200B", "c"), ("E0041", ""))
    ) + "</p>"),
]  # fmt: skip

SIZE = 30_000
HOSTILE = {
    "backticks": "`" * SIZE,
    "code": "`a" * (SIZE // 2),
    "nested lists": "".join("  " * (n % 60) + "- a\n" for n in range(SIZE // 64)),
    "emphasis": "a**b" * (SIZE // 4),
    "open emphasis": "*a **b _c " * (SIZE // 10),
    "brackets": "[" * SIZE,
    "links": "![a](b [c](" * (SIZE // 11),
    "quotations": ">" * 3_000,
    "quoted lines": "> > > > > > > > > > > a\n" * (SIZE // 24),
    "table": "a|" * 200 + "\n" + "-|" * 200 + "\n" + "|\n" * 5_000,
    "wide table": "a|" * 900 + "\n" + "-|" * 900 + "\n" + "|\n" * 5_000,
    "lines": "*b*\n" + "a\n" * 45_000,
    "heading": "# " + "#" * (SIZE // 2) + " " * (SIZE // 2) + "x",
    "white space": "\n" * (SIZE // 2) + " " * (SIZE // 2) + "*",
    "escapes": "\\*" * (SIZE // 2),
    "unseen": "*\u200b" * (SIZE // 2),
    "a megabyte": "`" * 990_000,
}


def run_of_responses(responses: list[str], **fields: str) -> RunFile:
    lines = [own_line(number, "MET") for number in range(len(responses))]
    for line, response in zip(lines, responses, strict=True):
        line["submission"] |= {"response": response, **fields}
    return RunFile.of("run", [Line(line) for line in lines])


def open_row(page: Any, number: int) -> Any:
    page.evaluate(f"location.hash = '#s{number}'")
    page.wait_for_selector(f"#one h2:text-is('s{number}')")
    return page.locator("#one [data-text=response]")


def test_markdown_is_rendered_as_people_read_it_and_its_source_is_one_key_away(show: Callable[..., Any]) -> None:
    page = show(run_of_responses([text for text, _ in SAMPLES]))
    for number, (text, expected) in enumerate(SAMPLES):
        assert open_row(page, number).inner_html() == expected, text
    response = open_row(page, 0)
    page.keyboard.press("m")
    assert response.text_content() == SAMPLES[0][0]
    page.keyboard.press("j")
    page.wait_for_selector("#one h2:text-is('s1')")
    assert response.text_content() == SAMPLES[1][0]  # the choice holds for the next one
    page.click("#one .turn-source >> nth=0")
    assert response.inner_html() == SAMPLES[1][1]
    assert page.evaluate("document.activeElement.className") == "turn-source"


def test_hostile_markdown_of_any_shape_is_shown_and_the_page_goes_on(show: Callable[..., Any]) -> None:
    page = show(run_of_responses(list(HOSTILE.values())))
    for number, (name, text) in enumerate(HOSTILE.items()):
        shown = open_row(page, number).evaluate(
            "element => element.textContent.replace(/U\\+[0-9A-F]+|\\s|\u200b/g, '').length"
        )
        words = len("".join(text.split()).replace("\u200b", ""))
        marks = sum(map(text.count, "`*_-|>\\[]()!#"))
        assert words - marks <= shown <= words, name


def test_markdown_can_neither_act_nor_request_anything(show: Callable[..., Any]) -> None:
    everything = " ".join(EVIL).replace("\u2028", " ")
    text = "\n\n".join([
        *(f"- {evil}\n  - **{evil}**\n\n# {evil}\n\n> {evil}\n\n`{evil}`\n\n```{evil}\n{evil}\n```" for evil in EVIL),
        *(f"[{evil}]({evil}) ![{evil}]({evil})\n\n|{evil}|b|\n|-|-|\n|{evil}|{evil}|" for evil in EVIL),
        "[a](javascript:window.hacked=1) [b](data:text/html,<script>window.hacked=1</script>) <javascript:x> ![c](https://example.com/x.png)",
        "<a href='javascript:window.hacked=1'>x</a><iframe src='https://example.com'></iframe><table background='https://example.com/x'>",
        "[a]: https://example.com\n[![x](https://example.com/y.png)](https://example.com)",
    ])  # fmt: skip
    page = show(run_of_responses([text, everything], query=text, reference=text))
    open_row(page, 0)
    plain = "P BR UL OL LI STRONG EM S CODE PRE BLOCKQUOTE TABLE THEAD TBODY TR TH TD DIV SPAN SMALL HR"
    elements = page.eval_on_selector_all(
        "#one [data-text] *", "all => all.map(e => [e.tagName, ...e.getAttributeNames()])"
    )
    assert len(elements) > 200
    assert {name for name, *_ in elements} <= set(plain.split(" "))
    assert {name for _, *names in elements for name in names} <= {
        "class",
        "tabindex",
        "role",
        "aria-label",
        "scope",
        "start",
    }
    assert page.evaluate("window.hacked") is None
    assert "<iframe src='https://example.com'></iframe>" in page.inner_text("#one [data-text=response]")
    page.keyboard.press("m")
    assert page.evaluate("window.hacked") is None


def test_long_task_is_folded_until_it_is_wanted(show: Callable[..., Any]) -> None:
    page = show(run_of_responses(["a\n" * 40], query="Line\n" * 40 + "the end"))
    response = open_row(page, 0)
    task = page.locator("#one [data-text=query]")
    assert task.evaluate("element => element.scrollHeight > element.clientHeight")
    assert not response.evaluate("element => element.scrollHeight > element.clientHeight + 1")
    assert page.locator("#one .unfold").count() == 1
    assert page.get_attribute("#one .unfold", "aria-expanded") == "false"
    page.click("#one button:text-is('show all')")
    assert not task.evaluate("element => element.scrollHeight > element.clientHeight + 1")
    assert page.get_attribute("#one button:text-is('show less')", "aria-expanded") == "true"


QUOTED = [
    (
        "It was **8.4%** in\nthe _third_ quarter.", 'It says "was 8.4% in the third quarter,".',
        ["was **8.4%** in\nthe _third_ quarter"], None,
    ),
    ("A first, and far below a last word.", "\u201ca first ... a last word\u201d", ["A first", "a last word"], None),
    ("\u0130stanbul na\u200b\u00efve text", "'na\u00efve text'", ["na\u200b\u00efve text"], None),
    ("Short.", 'It should say "a price is what one pays for it" here.', [], "a price is what one pays for it"),
    ("Short.", 'It lacks "not here" and "f(x) = g(y) + h(z) and more".', [], None),
    ("Short.", 'The criterion "Says 5.1" and "it says what the rubric says so".', [], None),
]  # fmt: skip


def test_quotations_of_the_judge_are_marked_over_markup_and_lines(show: Callable[..., Any]) -> None:
    lines = [own_line(number, "MET") for number in range(len(QUOTED))]
    for line, (response, reason, *_) in zip(lines, QUOTED, strict=True):
        line["submission"]["response"] = response
        line["report"][0]["reason"] = reason
    lines[5]["report"][0]["requirement"] += ", it says what the rubric says so"
    page = show(RunFile.of("run", [Line(line) for line in lines]))
    for number, (_, _, marked, missing) in enumerate(QUOTED):
        open_row(page, number)
        for key in ("", "m", "m"):  # rendered, as the source, and rendered again
            if key:
                page.keyboard.press(key)
            texts = page.evaluate("[...CSS.highlights.get('quotation')].map(range => range.toString())")
            strip = str.maketrans("", "", "*_\n ")
            assert [text.replace("U+200B", "\u200b").translate(strip) for text in texts] == [
                text.translate(strip) for text in marked
            ]
        notes = page.locator("#one .unquoted").all_text_contents()
        assert notes == (
            []
            if missing is None
            else [f"In quotation marks in a reason, and not word for word in these texts: \u201c{missing}\u201d"]
        )


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_quotation_stays_text(show: Callable[..., Any], evil: str) -> None:
    line = own_line(0, "MET")
    line["report"][0]["reason"] = f'"a b c d e {evil}" \u201ca b c d e {evil}\u201d'
    page = show(RunFile.of("run", [Line(line)]))
    open_row(page, 0)
    assert page.locator("#one .unquoted *").count() == 0
    assert page.evaluate("window.hacked") is None
