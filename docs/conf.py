"""How the site is built: ``make docs`` (every example is run) or ``make docs-quick`` (only the short ones)."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import gallery  # noqa: E402
import reference  # noqa: E402

import bidual  # noqa: E402

project, author = "bidual", "The bidual developers"
version = release = bidual.__version__
copyright = author

templates_path = ["_templates"]
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "accessible",
    "mathml",
    "papers",
    "reference",
    "results",
    "together",
]
exclude_patterns = ["_examples", "**/GALLERY_HEADER.rst"]
suppress_warnings = ["config.cache"]  # the settings of the gallery hold functions

html_theme = "furo"
html_title = "bidual"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f66b8", "color-brand-content": "#1f66b8"},
    "dark_css_variables": {"color-brand-primary": "#7db4f2", "color-brand-content": "#7db4f2"},
}
html_math_renderer = "mathml"  # no JavaScript, no network
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc says it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ---- the gallery: every file of examples/ becomes a page -----------------------------------------

reference.write_names(HERE / "api")
QUICK = os.environ.get("BIDUAL_DOCS", "") == "quick"
gallery.prepare(HERE.parent / "examples", HERE / "_examples")
sphinx_gallery_conf = {
    "examples_dirs": str(HERE / "_examples"),
    "gallery_dirs": "gallery",
    # the short ones are called plot_*; the others are shown without being run when there is no time
    "filename_pattern": r"[\\/]plot_" if QUICK else r"\.py$",
    "image_scrapers": ("matplotlib", gallery.saved_pictures),
    "reset_modules": ("matplotlib", gallery.reset),
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "write_computation_times": False,
    "within_subsection_order": "gallery.ShortOnesFirst",
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "default_thumb_file": str(HERE / "fit.png"),
}
warnings.filterwarnings("ignore", message=".*non-interactive.*")  # examples call plt.show
