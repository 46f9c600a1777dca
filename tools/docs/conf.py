# SPDX-License-Identifier: MIT
# Sphinx configuration of the site; tools/docs/site.py writes its input, script/docs sets the version in the environment.
import os

project, author = "libattn", "The libattn authors"
copyright = "The libattn authors"
version = release = os.environ["ATTN_VERSION"]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 4
toc_object_entries = False  # halves the build time, since every page contains the whole tree
nitpicky = True
# Types of the C library and of MPI, which have no page.
nitpick_ignore = [("c:identifier", name) for name in ("size_t", "int32_t", "int64_t", "uint32_t", "uint64_t")]
nitpick_ignore_regex = [("c:identifier", r"MPI_\w+")]
add_function_parentheses = False
smartquotes = False
highlight_language = "none"
pygments_style = "default"

html_theme = "furo"
html_title = f"libattn {version}"
html_extra_path = ["extra"]
html_static_path, html_css_files = ["static"], ["site.css"]
html_search_scorer = os.path.join(os.path.dirname(__file__), "scorer.js")
html_copy_source = html_show_sourcelink = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True}
# Two builds of the same pages have the same bytes.
html_permalinks_icon = "#"
