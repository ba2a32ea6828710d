"""The site's own package is docs/_site, which the build and the browser import as _site."""

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
if str(DOCS) not in sys.path:
    sys.path.insert(0, str(DOCS))
