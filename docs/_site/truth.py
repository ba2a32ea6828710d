"""Whether the answer to an exercise is right: in the build the page's own, in the browser the reader's."""

from typing import Any


def is_true(expression: str, names: dict[str, Any]) -> bool:
    """Whether an expression is true; one that raises is not."""
    try:
        return bool(eval(expression, names))
    except Exception:
        return False
