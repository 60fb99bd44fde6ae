"""What `mkdocs.yml` needs beyond MkDocs: files from outside of docs/, and a look at what was built.

Links in the pages are written for a reader of the repository. A page of docs/ reaches other folders by
``../``; on the site these folders lie beside the pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

#: Files of the repository that the site shows too, at the same paths.
OUTSIDE = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/*.py",
    "experiments/report/[!r]*.md",  # not reading.md, which is a part of a page
    "experiments/report/*.png",
    "experiments/report/paper/*.png",
    "experiments/report/controllers/*.png",
    "experiments/report/service/*",
]
#: What makes a browser load something from elsewhere when it opens a page.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|"""
    r"""<link\b[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon)\b[^>]*\bhref=["']?(?:https?:)?//|"""
    r"""@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//"""
)


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside."""
    root = Path(config.config_file_path).parent
    for pattern in OUTSIDE:
        found = sorted(root.glob(pattern))
        if not found:
            raise PluginError(f"docs/hooks.py: there is no {pattern}")
        for path in found:
            name = path.relative_to(root).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Point links between docs/ and the rest to where the files lie on the site."""
    source = page.file.src_uri
    if page.file.generated_by:
        return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)
    if source.startswith("papers/"):
        return markdown.replace("](../../", "](../")
    return markdown if "/" in source else markdown.replace("](../", "](")


def on_post_build(config: Any) -> None:
    """Fail when a page would load anything from the network."""
    site = Path(config.site_dir)
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        found = FETCHED.search(page.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{page.relative_to(site)} loads from the network: {found[0]}")
