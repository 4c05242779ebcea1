"""How Sphinx makes the site: `sphinx-build -W --keep-going -b html docs OUT`, with the extra `docs` installed."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import pages  # noqa: E402

from tapestry_exec.run import stages  # noqa: E402
from tapestry_plan import onnx  # noqa: E402
from tapestry_plan.ir import Graph, Tensor, handles  # noqa: E402
from tapestry_plan.rewrite import derived  # noqa: E402

# Signatures are written out with names that the module has for type checkers alone.
stages.ModelStage, stages.StagedModel = onnx.ModelStage, onnx.StagedModel
derived.Tensor, handles.Graph = Tensor, Graph

project = "tapestry"
author = "The tapestry authors"
copyright = author
release = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["build"]
root_doc = "index"
html_theme = "furo"
html_title = f"tapestry {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_ivar = True
napoleon_use_rtype = False
maximum_signature_line_length = 140
python_use_unqualified_type_names = True

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_render_markdown_format = "myst"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    pages.write_pages()
    files = {page: name for name, page in pages.pages_of_files().items() if name.startswith("docs/")}

    def follow(app: Sphinx, page: str, source: list[str]) -> None:
        if page in files:
            source[0] = pages.follow_links(source[0], files[page], page)

    def mend(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
        lines[:] = pages.mend_lines(lines)

    app.connect("source-read", follow)
    app.connect("autodoc-process-docstring", mend, priority=900)  # behind napoleon, which reads sections
