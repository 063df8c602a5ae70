"""Sphinx settings. Build with `python -m sphinx -W -b html docs docs/_build/html`."""

from importlib.metadata import version as installed

project = "tito"
copyright = "the tito authors"  # noqa: A001  # Sphinx reads it by this name
release = version = installed("tito-kernel")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
]
exclude_patterns = ["_build", "**/__pycache__"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "literal"  # docstrings write code in single backticks
napoleon_use_ivar = True  # attributes are listed once, in the class
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = "tito"
html_theme_options = {"source_repository": "", "sidebar_hide_name": False}
