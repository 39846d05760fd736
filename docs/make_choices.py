"""Write `docs/choices.md` from the words `Source:` and `Choice:` in the docstrings of the package.

Run `python docs/make_choices.py`; a test fails when the page is behind the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "choices.md"
_HEAD = """# What the papers say, and what we chose

Generated from the docstrings by `python docs/make_choices.py`. *Source* is stated by a paper (or
another named origin), *Choice* is ours where the paper is silent.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    package = ROOT / "src" / "triaxial"
    for path in sorted(package.rglob("*.py")):
        entries = list(_entries(path))
        if entries:
            name = path.relative_to(package).with_suffix("").as_posix().replace("/", ".")
            parts.append(f"\n## `{name}`\n\n" + "\n".join(entries) + "\n")
    return "".join(parts)


def _entries(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            where = "" if isinstance(node, ast.Module) else f"`{node.name}`: "
            for argument, kind, said in _statements(text):
                of = f"{where}{argument}" if argument else where
                yield f"- **{kind}** {of}{said}"


def _statements(text: str) -> Iterator[tuple[str, str, str]]:
    """Argument it stands under (or ""), kind and text of every statement of a docstring."""
    argument = ""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*\w+: )|\n(?=(?:Source|Choice):)", text):
        named = re.match(r"\s+(\w+): ", paragraph)
        if named and named.group(1) not in ("Source", "Choice"):
            argument = f"`{named.group(1)}`: "
        elif not paragraph.startswith(" "):
            argument = ""
        flat = " ".join(paragraph.split())
        for kind, said in re.findall(
            r"\b(Source|Choice): (.*?)(?=\s*\b(?:Source|Choice): |$)", flat
        ):
            yield argument, kind, said


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
