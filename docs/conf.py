"""Sphinx configuration: ``sphinx-build -W docs docs/_build``."""

import os
import sys
from pathlib import Path

import minadv

os.environ.setdefault("MINADV_ENGINE", "plain")  # examples compute as in the browser; autodoc mocks Numba
sys.path.insert(0, str(Path(__file__).parent))  # for _site, the site's own extension

project = "minadv"
author = "the minadv developers"
copyright = "2026, the minadv developers"
version = release = minadv.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "_site", "_site.play"]
myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_site"]

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints = "none"  # shapes say more than types: they are in the docstrings
autodoc_preserve_defaults = True
autodoc_mock_imports = ["cupy", "numba", "torch"]  # optional

html_theme = "furo"
html_title = f"minadv {release}"
html_math_renderer = "mathml"
html_static_path = ["_site/static"]
html_favicon = "_site/static/icon.svg"
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_sourcelink = False
toc_object_entries = False  # thousands of names, which Sphinx would copy for the side of every page
html_use_index = html_domain_indices = False  # the search and the API page find every name

live_parts = True  # fetched with npm, once; without npm, or with -D live_parts=0, the site has no live code and says so
