"""For the site: the examples of docstrings stand in fences, or markdown would take `>>>` for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)


class FenceDoctests(griffe.Extension):
    """Put every block of doctests between fences when the whole package has been read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Walk all objects once."""
        waiting: list[Any] = [pkg]
        while waiting:
            each = waiting.pop()
            if each.docstring is not None and "```" not in each.docstring.value:
                each.docstring.value = _EXAMPLE.sub(_fence, each.docstring.value)
            waiting += [member for member in each.members.values() if not member.is_alias]


def _fence(match: re.Match[str]) -> str:
    return f"```python\n{match[0]}\n```"
