"""What the site needs beyond MkDocs: pages from files outside docs/, and a check of what was built.

- Examples, the notebook, the help of the commands and the notes on the records become pages.
- Links from a page to such a file lead to its page. Links to other files of the repository become plain text.
- The built site is refused if a page loads anything from a network, or links to a file that is not there.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)")
RECORDS = {"records/README.md": "records/made.md", "records/history.md": "records/history.md"}
"""Notes outside docs/ that become pages. A README would become the index of its section."""
SHORT = 30
"""Characters of a first cell that need no more than a narrow column."""
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
REMOTE = re.compile(r"^(https?:)?//")
IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^)'\"]+)")


# --- pages from files outside docs/ -----------------------------------------------------------------------


def example_page(text: str) -> str:
    """A page for an example script: its first line, its docstring and its code."""
    told = (ast.get_docstring(ast.parse(text)) or "").split("\n", 1)
    rest = told[1].strip("\n") if len(told) > 1 else ""
    code = text.split('"""', 2)[2].strip()
    return f"# {told[0].rstrip('.')}\n\n{rest}\n\n```python\n{code}\n```\n"


def notebook_page(text: str) -> str:
    """A page for a notebook: text cells as they are, code cells with their stored outputs."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output.get("data", {}):
                parts.append(f"![figure](data:image/png;base64,{output['data']['image/png'].strip()})")
    return "\n\n".join(parts) + "\n"


def command_page() -> str:
    """The help texts of all commands."""
    from hcdc.cli import main

    def told(*words: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([*words, "--help"])
        return out.getvalue().strip()

    top = told()
    names = re.findall(r"^  (\w+) ", top.partition("Commands:")[2], re.M)
    parts = [f"## hcdc {name}\n\n```text\n{told(name)}\n```" for name in names]
    return "\n\n".join(["# Command line", f"```text\n{top}\n```", *parts]) + "\n"


def site_page(path: str) -> str | None:
    """The page of a repository file, relative to the site; None if it has none."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return RECORDS.get(path)


def rewritten(markdown: str, page: str) -> str:
    """A page with links that hold on the site.

    Args:
        markdown: Its text.
        page: Where it lies in the repository, e.g. ``docs/guides/my-table.md``.
    """
    here = site_page(page) or page

    def link(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        place, mark, anchor = target.partition("#")
        if not place or urlsplit(target).scheme:
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page), place))
        if not (ROOT / path).exists():
            return found[0]  # MkDocs will say so
        there = site_page(path)
        if there is None:
            return text if "`" in text else f"`{text}`" if text == place else f"{text} (`{path}`)"
        return f"{image}[{text}]({os.path.relpath(there, os.path.dirname(here) or '.')}{mark}{anchor})"

    return LINK.sub(link, markdown)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    made = {
        f"examples/{path.stem}.md": example_page(path.read_text())
        for path in (ROOT / "examples").glob("*.py")
    }
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        made[f"notebooks/{path.stem}.md"] = notebook_page(path.read_text())
    made["reference/command-line.md"] = command_page()
    for name, page in RECORDS.items():
        made[page] = rewritten((ROOT / name).read_text(), name)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    name = f"docs/{page.file.src_uri}"
    return rewritten(markdown, name) if (ROOT / name).exists() else markdown


def marked(html: str) -> str:
    """A page whose tables say if their first cells are short, and need no width for descriptions."""

    def mark(found: re.Match[str]) -> str:
        cells = re.findall(r"<tr>\s*<td[^>]*>(.*?)</td>", found[0], re.S)
        longest = max((len(re.sub(r"<[^>]+>", "", cell)) for cell in cells), default=0)
        return found[0] if longest > SHORT else found[0].replace("<table>", '<table data-first="short">', 1)

    return re.sub(r"<table>.*?</table>", mark, html, flags=re.S)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    return marked(html)


# --- the built site ---------------------------------------------------------------------------------------


class References(HTMLParser):
    """What a page loads and links to.

    Attributes:
        loaded: Scripts, styles, fonts and images.
        linked: Targets of links.
        names: Anchors.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.names: set[str] = set()
        self.feed(text)
        self.loaded += IN_STYLES.findall(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.linked.append(given["href"])
        elif tag in LOADS and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded += [given[LOADS[tag]]] if LOADS[tag] in given else []


def faults(site: Path) -> list[str]:
    """What is wrong with a built site: remote references, and links to nothing; one line each."""
    pages = {page: References(page.read_text()) for page in sorted(site.rglob("*.html"))}
    found = []
    for page, refers in pages.items():
        name = page.relative_to(site)
        if name.name == "404.html":  # its links are absolute
            continue
        found += [f"{name} loads {target}" for target in refers.loaded if REMOTE.match(target)]
        for target in refers.loaded + refers.linked:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            there = there / "index.html" if there.is_dir() else there
            if not there.exists():
                found.append(f"{name} links to {target}, which is not there")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].names:
                found.append(f"{name} links to {target}, which has no such anchor")
    for style in site.rglob("*.css"):
        found += [
            f"{style.relative_to(site)} loads {target}" for target in IN_STYLES.findall(style.read_text())
        ]
    return found


def on_post_build(config: Any) -> None:
    from mkdocs.exceptions import PluginError

    if wrong := faults(Path(config["site_dir"])):
        raise PluginError("\n".join(wrong))
