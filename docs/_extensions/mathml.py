"""Formulas as MathML, written when the site is built, which every current browser sets.

    $\\bar{x}_j$  →  <math><msub><mover>x ˉ</mover> j</msub></math>

MathJax, Sphinx's default, is loaded from another host whenever a page is read.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
LOG = logging.getLogger(__name__)


def with_accents(xml: str) -> str:
    """Accents above letters: above one with an index, docutils writes them as a limit."""
    ElementTree.register_namespace("", NAMESPACE)
    # entities of MathML, such as &ApplyFunction;, are no entities of XML
    root = ElementTree.fromstring(re.sub(r"&(?!amp;|lt;|gt;)\w+;", lambda m: unescape(m[0]), xml))
    for element in root.iter(f"{{{NAMESPACE}}}mover"):
        element.attrib.pop("accent", None)  # with it, browsers without a math font show no bar
    for element in root.iter(f"{{{NAMESPACE}}}munderover"):
        letter, index, accent = element
        if letter.tag.endswith("}mi") and accent.tag.endswith("}mo"):
            over = ElementTree.Element(f"{{{NAMESPACE}}}mover")
            over.extend([letter, accent])
            element.tag = f"{{{NAMESPACE}}}msub"
            element[:] = [over, index]
    return ElementTree.tostring(root, encoding="unicode")


def with_matrices(tex: str) -> str:
    r"""``\substack{a \\ b}``, which docutils lacks, as a matrix of one column."""
    while (start := tex.find(r"\substack{")) >= 0:
        inside = start + len(r"\substack{")
        stop, depth = inside, 1
        while depth:
            depth += {"{": 1, "}": -1}.get(tex[stop], 0)
            stop += 1
        lines = tex[inside : stop - 1]
        column = rf"\begin{{smallmatrix}} {lines} \end{{smallmatrix}}"
        tex = tex[:start] + column + tex[stop:]
    return tex


def converted(tex: str, node: nodes.Node, block: bool) -> str:
    """A formula as MathML; one that cannot be converted is a warning, and stays as text."""
    if block and re.search(r"(?<!\\)(\\\\|&)", tex) and "\\begin" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    try:
        return with_accents(tex2mathml(with_matrices(tex.strip()), as_block=block))
    except MathError as error:
        LOG.warning("%s in the formula %s", error, tex, location=node)
        return f"<code>{tex}</code>"


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(converted(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own."""
    writer.body.append(f'<div class="formula">{converted(node.astext(), node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer, which conf.py chooses."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
