"""The site: what Sphinx needs to build it, and the small Python part that runs in the reader's browser as well.

In both: `page` (tables and plots) and `cells` (runs an example). Only in the build: the rest.
"""

from typing import Any


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's door. The extension is imported only now: the browser has no Sphinx."""
    from _site import extension

    return extension.setup(app)
