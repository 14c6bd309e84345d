"""Configuration of the documentation site, which ``make docs`` builds."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_extensions")]

import tvm_autodiff  # noqa: E402

project = "tvm_autodiff"
author = "the authors of tvm_autodiff"
project_copyright = "the authors of tvm_autodiff"
version = release = tvm_autodiff.__version__

extensions = [
    "myst_nb",  # pages in Markdown, and the notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",  # _extensions/mathml.py
    "collected",  # _extensions/collected.py
]
exclude_patterns = ["_build", "_extensions", "**.ipynb_checkpoints"]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}

# a name in backquotes in a docstring becomes a link where it is documented
default_role = "py:obj"
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # numpydoc's sections give the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# notebooks are kept with their outputs, which tests/test_notebooks.py compares with a run;
# the blocks of the other pages are run by tests/test_pages.py
nb_execution_mode = "off"

html_theme = "pydata_sphinx_theme"
html_title = "tvm_autodiff"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 1,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "changelog": [], "contributing": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
