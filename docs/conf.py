"""Sphinx configuration: ``sphinx-build -W docs docs/_build``."""

import minadv

project = "minadv"
author = "the minadv developers"
copyright = "2026, the minadv developers"
version = release = minadv.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints = "none"  # shapes say more than types: they are in the docstrings
autodoc_preserve_defaults = True
autodoc_mock_imports = ["cupy", "numba"]  # optional

html_theme = "furo"
html_title = f"minadv {release}"
