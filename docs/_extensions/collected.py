"""Pages of the site from files that live elsewhere in the repository.

    tutorials/NAME.py       →  docs/tutorials/scripts/NAME.md   docstring, then the script
    notebooks/NAME.ipynb    →  docs/tutorials/notebooks/NAME.ipynb
    CONTRIBUTING.md         →  docs/contributing.md
    CHANGELOG.md            →  docs/changelog.md

Git ignores what is written here. Files are written only where they change, so that a second build
reads the changed pages alone.
"""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS, NOTEBOOKS = DOCS / "tutorials" / "scripts", DOCS / "tutorials" / "notebooks"
#: where a file of the repository is on the site
PLACES = {
    **{path: SCRIPTS / f"{path.stem}.md" for path in (ROOT / "tutorials").glob("*.py")},
    **{path: NOTEBOOKS / path.name for path in (ROOT / "notebooks").glob("*.ipynb")},
    ROOT / "CONTRIBUTING.md": DOCS / "contributing.md",
    ROOT / "CHANGELOG.md": DOCS / "changelog.md",
    ROOT / "README.md": DOCS / "index.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def with_links(text: str, source: Path, page: Path) -> str:
    """The text of a file as a page elsewhere: links lead to pages, or become plain text.

    Parameters
    ----------
    text : str
        Markdown.
    source : Path
        The file that it comes from, to which its links are relative.
    page : Path
        The page that it becomes.
    """

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        path = (source.parent / target).resolve()
        path = PLACES.get(path, path)
        if path.is_relative_to(DOCS) and (path.suffix in {".md", ".ipynb"} or path.exists()):
            return f"[{label}]({os.path.relpath(path, page.parent)}{anchor or ''})"
        return label if target in label else f"{label} (`{target}`)"

    return LINK.sub(link, text)


def script_page(script: Path) -> str:
    """A script as a page: its docstring as the introduction, and then the source."""
    source = script.read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, introduction = docstring.partition("\n\n")
    start = source.index('"""', source.index('"""') + 3) + 3 if docstring else 0
    first = source[:start].count("\n") + 1 + (source[start:].lstrip("\n") != source[start:])
    introduction = introduction.replace("``", "`")
    return (
        f"# {' '.join(title.split()).rstrip('.')}\n\n{introduction}\n\n"
        f"```{{literalinclude}} {os.path.relpath(script, SCRIPTS)}\n:lines: {first + 1}-\n```\n"
    )


def notebook_page(notebook: Path) -> str:
    """A notebook whose links lead to pages of the site."""
    content = json.loads(notebook.read_text("utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            cell["source"] = with_links(text, notebook, PLACES[notebook])
    return json.dumps(content, ensure_ascii=False, indent=1)


def pages() -> dict[Path, str]:
    """The text of every page that is made of a file elsewhere."""
    result = {}
    for source, page in PLACES.items():
        if not source.exists() or source.name == "README.md":
            continue
        if source.suffix == ".py":
            result[page] = script_page(source)
        elif source.suffix == ".ipynb":
            result[page] = notebook_page(source)
        else:
            result[page] = with_links(source.read_text("utf-8"), source, page)
    return result


def write(app: Sphinx) -> None:
    """Write the pages, and remove those whose file is gone."""
    wanted = pages()
    for folder in (SCRIPTS, NOTEBOOKS):
        folder.mkdir(exist_ok=True)
        for path in set(folder.iterdir()) - set(wanted):
            path.unlink()
    for page, text in wanted.items():
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Collect before Sphinx looks for pages."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
