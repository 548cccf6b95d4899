"""The documentation site (tools/build_site.py): links, menus, names. `make site` builds it whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import build_site  # noqa: E402


@pytest.mark.parametrize(
    ("link", "moved", "outside"),
    [
        ("(keras.md#keras-2)", "(keras.md#keras-2)", set()),
        ("(../examples/a.py)", "(files/examples/a.py)", {"examples/a.py"}),
        ("(../deploy/azureml)", "(files/deploy/azureml/index.html)", {"deploy/azureml"}),
        ("(../CHANGELOG.md)", "(changelog.md)", set()),
        ("(../SECURITY.md)", "(security.md)", set()),
        ("(https://example.org/a.md)", "(https://example.org/a.md)", set()),
    ],
)
def test_links_that_leave_the_pages_lead_to_copies(link: str, moved: str, outside: set[str]) -> None:
    text, found = build_site.staged(f"See [this]{link}.", Path("gpu.md"), Path("docs/gpu.md"))
    assert (text, found) == (f"See [this]{moved}.", set(map(Path, outside)))


def test_links_of_pages_in_other_places() -> None:
    note = build_site.staged("[a](../gpu.md#x) [b](../../src/b.cc)", Path("design/1.md"), Path("docs/design/1.md"))
    assert note == ("[a](../gpu.md#x) [b](../files/src/b.cc)", {Path("src/b.cc")})
    changes = build_site.staged("[a](docs/gpu.md) [b](LICENSE)", Path("changelog.md"), Path("CHANGELOG.md"))
    assert changes == ("[a](gpu.md) [b](files/LICENSE.txt)", {Path("LICENSE")})


def test_code_is_no_link() -> None:
    code = "```python\ntable[i](x)\n```"
    text, outside = build_site.staged(f"{code}\n[b](../LICENSE)\n{code}\n", Path("a.md"), Path("docs/a.md"))
    assert (text, outside) == (f"{code}\n[b](files/LICENSE.txt)\n{code}\n", {Path("LICENSE")})


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api/a.html").write_text(
        '<a href="../b.html#x"> <a href="https://x.org/y"> <a href="#z"> <a href=gone.html>'
    )
    (tmp_path / "b.html").write_text("<img src='c'>")
    assert build_site.dead_links(tmp_path) == [
        "api/a.html links to gone.html, which is not there",
        "b.html links to c, which is not there",
    ]


def test_what_a_block_says_to_a_test_is_left_out() -> None:
    text, _ = build_site.staged("```python not run: no GPU\nx = 1\n```\n", Path("a.md"), Path("docs/a.md"))
    assert text == "```python\nx = 1\n```\n"


def test_every_page_is_in_a_menu() -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs) for page in docs.rglob("*.md")} - build_site.LEFT_OUT
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = build_site.in_menu(build_site.filled_menu(menu, sorted(pages)))
    assert pages - listed == set()
    assert listed - pages == {
        *build_site.BESIDE.values(),
        *(Path(f"api/horovod.{name}.md") for name in build_site.MODULES),
    }
