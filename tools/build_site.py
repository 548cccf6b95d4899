"""Builds the documentation site: `build_site.py` with Zensical and mkdocstrings installed, from mkdocs.yml and docs/.

Pages are copied to build/site/pages. A link that leaves docs/ leads to a copy of its file in the site. Each module of
MODULES gets a page of its public names, made from the docstrings by mkdocstrings; nothing of the package is imported.
Exit code 1 if a page is in no menu, a public name is on no page, or a link of the site leads nowhere.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/site"
PAGES, HTML = BUILD / "pages", BUILD / "html"
LEFT_OUT = {Path("package.md")}  # what a package index shows
MODULES = (
    "torch",
    "torch.elastic",
    "torch.distributed",
    "lightning",
    "tensorflow",
    "tensorflow.elastic",
    "tensorflow.keras",
    "tensorflow.keras.callbacks",
    "tensorflow.keras.elastic",
    "tensorflow.data.compute_service",
    "keras",
    "keras.callbacks",
    "keras.elastic",
    "jax",
    "jax.elastic",
    "mxnet",
    "numpy",
    "numpy.elastic",
    "data.data_loader_base",
    "common.exceptions",
    "spark",
    "spark.torch",
    "spark.keras",
    "spark.lightning",
    "spark.common.store",
    "spark.common.backend",
    "spark.common.datamodule",
    "spark.conf",
    "spark.task",
    "ray",
    "ray.elastic",
    "runner",
)
# Pages that lie beside docs/, and theirs of the site.
BESIDE = {Path("CHANGELOG.md"): Path("changelog.md"), Path("SECURITY.md"): Path("security.md")}
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)  # says how a test takes the block


def staged(text: str, page: Path, source: Path) -> tuple[str, set[Path]]:
    """A page for the site, and the files outside of docs/ that it links to.

    Args:
        text: of the page.
        page: its path in the site.
        source: the page, below the root of the checkout.
    """
    outside: set[Path] = set()
    up = "../" * len(page.parent.parts)

    def moved(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(source.parent / link[2]))
        if path.parts[0] == "docs" and path.suffix:
            return f"{link[1]}{up}{path.relative_to('docs')}{link[3]}"
        if path in BESIDE:
            return f"{link[1]}{up}{BESIDE[path]}{link[3]}"
        outside.add(path)
        return f"{link[1]}{up}{place_of_copy(path)})"

    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)  # blocks of code are every other one
    parts[::2] = [_LINK.sub(moved, part) for part in parts[::2]]
    return _FENCE.sub(r"\1", "".join(parts)), outside


def place_of_copy(path: Path) -> Path:
    """Where the site has a file, or the list of a folder: browsers show what ends like this."""
    place = "files" / path
    if (ROOT / path).is_dir():
        return place / "index.html"
    return place if path.suffix else place.with_suffix(".txt")


def stage_pages() -> list[Path]:
    """Copies docs/, the pages beside it, and what they link to; the pages, as paths in the site."""
    shutil.copytree(ROOT / "docs", PAGES)
    sources = {page.relative_to(PAGES): Path("docs") / page.relative_to(PAGES) for page in sorted(PAGES.rglob("*.md"))}
    sources |= {page: source for source, page in BESIDE.items()}
    for page, source in sources.items():
        text, outside = staged((ROOT / source).read_text(), page, source)
        (PAGES / page).write_text(text)
        for path in outside:
            copy_outside(path)
    for page in LEFT_OUT:
        (PAGES / page).unlink()
        del sources[page]
    return list(sources)


def copy_outside(path: Path) -> None:
    """Copies a file; of a folder, a list of its tracked files."""
    copy = PAGES / place_of_copy(path)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if (ROOT / path).is_dir():
        listed = subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, text=True, check=True)
        copy.write_text(f"<pre>{html.escape(listed.stdout)}</pre>")
    else:
        shutil.copyfile(ROOT / path, copy)


def public_names(package: Any, module: str) -> list[str]:
    """Names of a module that a reference page shows: of its `__all__`, what is no module."""
    found = package[module]
    names = [str(name) for name in found.exports or found.members if not str(name).startswith("_")]
    return [name for name in names if name not in found.members or not found.members[name].is_module]


def stage_reference(package: Any) -> dict[str, list[str]]:
    """Writes a page for each module of MODULES; the names on each."""
    shown = {}
    (PAGES / "api").mkdir()
    for module in MODULES:
        path = f"horovod.{module}"
        shown[path] = names = public_names(package, module)
        lines = [f"# {path}", "", f"::: {path}", "    options:", "      show_root_heading: false", "      members:"]
        (PAGES / "api" / f"{path}.md").write_text("\n".join(lines + [f"        - {name}" for name in names]) + "\n")
    return shown


def in_menu(entries: Iterable[Any]) -> set[Path]:
    """Pages of a menu of mkdocs.yml."""
    found: set[Path] = set()
    for entry in entries:
        below = list(entry.values())[0] if isinstance(entry, dict) else entry
        found |= {Path(below)} if isinstance(below, str) else in_menu(below)
    return found


def filled_menu(menu: str, pages: Sequence[Path]) -> list[Any]:
    """The menu of mkdocs.yml with the two parts that follow from the files.

    Args:
        menu: what stands below `nav:`.
        pages: all, as paths in the site.
    """
    nav: list[Any] = yaml.safe_load(menu)
    for title, entries in ((title, entries) for part in nav for title, entries in part.items()):
        if title == "API":
            entries += [{f"horovod.{module}": f"api/horovod.{module}.md"} for module in MODULES]
        elif title == "Inside":
            entries.append({"Design notes": [str(page) for page in pages if page.parts[0] == "design"]})
    return nav


def missing_names(shown: dict[str, list[str]]) -> list[str]:
    """Public names that no built page has."""
    missing = []
    for module, names in shown.items():
        page = (HTML / "api" / f"{module}.html").read_text()
        missing += [f"{module}.{name}" for name in names if f'id="{module}.{name}"' not in page]
    return missing


def dead_links(site: Path) -> list[str]:
    """Links of a site's pages to files that it does not have."""
    dead = []
    for page in sorted(set(site.rglob("*.html")) - {site / "404.html"}):  # whose links begin at the root
        for target in re.findall(r"""(?:href|src)=["']?([^"'#?\s>]+)""", page.read_text()):
            if not urlsplit(target).scheme and not (page.parent / unquote(target)).exists():
                dead.append(f"{page.relative_to(site)} links to {target}, which is not there")
    return dead


def main() -> int:
    import griffe  # not in the development environment, where the rest is tested

    shutil.rmtree(BUILD, ignore_errors=True)
    pages = stage_pages()
    loader = griffe.GriffeLoader(search_paths=[str(ROOT / "python")], docstring_parser="google")
    package = loader.load("horovod")
    loader.resolve_aliases(implicit=False, external=False)
    shown = stage_reference(package)
    head, _, menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    nav = filled_menu(menu, pages)
    (BUILD / "mkdocs.yml").write_text(head + "\n" + yaml.safe_dump({"nav": nav}, sort_keys=False))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", BUILD / "mkdocs.yml"]
    built = subprocess.run(command, check=False)
    if built.returncode:
        return built.returncode
    problems = [f"{page} is in no menu of mkdocs.yml" for page in sorted(set(pages) - in_menu(nav))]
    problems += [f"{name} has no place in the API reference" for name in missing_names(shown)]
    problems += dead_links(HTML)
    print("\n".join(problems) or f"{len(pages)} pages and {sum(map(len, shown.values()))} public names: {HTML}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
