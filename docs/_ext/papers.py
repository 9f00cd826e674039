"""The papers, once: short names in pages, docstrings and examples become links that say authors and title."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.transforms.post_transforms import SphinxPostTransform


@dataclass(frozen=True)
class Paper:
    """What is cited."""

    cited: str
    authors: str
    title: str
    where: str
    link: str
    about: str


#: By the short names of the code.
PAPERS = {
    "003": Paper(
        "Pilanci & Ergen 2020",
        "Mert Pilanci, Tolga Ergen",
        "Neural Networks are Convex Regularizers: Exact Polynomial-time Convex Optimization Formulations for "
        "Two-Layer Networks",
        "ICML 2020",
        "https://arxiv.org/abs/2002.10553",
        "the convex programs of two-layer networks and convolutional ones",
    ),
    "004": Paper(
        "Ergen & Pilanci 2021a",
        "Tolga Ergen, Mert Pilanci",
        "Convex Geometry and Duality of Over-parameterized Neural Networks",
        "Journal of Machine Learning Research, 2021",
        "https://arxiv.org/abs/2002.11219",
        "splines, the geometry of optimal neurons, cutting planes, Convex-RF",
    ),
    "001": Paper(
        "Ergen & Pilanci 2021b",
        "Tolga Ergen, Mert Pilanci",
        "Revealing the Structure of Deep Neural Networks via Convex Duality",
        "ICML 2021",
        "https://arxiv.org/abs/2002.09773",
        "formulas for deep linear and deep ReLU networks, neural collapse",
    ),
    "000": Paper(
        "Ergen et al. 2022",
        "Tolga Ergen, Arda Sahiner, Batu Ozturkler, John Pauly, Morteza Mardani, Mert Pilanci",
        "Demystifying Batch Normalization in ReLU Networks: Equivalent Convex Optimization Models and Implicit "
        "Regularization",
        "ICLR 2022",
        "https://arxiv.org/abs/2103.01499",
        "batch normalisation",
    ),
    "002": Paper(
        "Ergen & Pilanci 2023",
        "Tolga Ergen, Mert Pilanci",
        "Path Regularization: A Convexity and Sparsity Inducing Regularization for Parallel ReLU Networks",
        "NeurIPS 2023",
        "https://arxiv.org/abs/2110.09548",
        "parallel networks of three layers and more",
    ),
}
#: A short name that is no part of a number.
SHORT = re.compile(r"(?<![\w.,/-])(00[0-4])(?![\w/-]|[.,]\d)")


class Cite(SphinxPostTransform):
    """Short names in running text become links to the paper."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        """Look at all texts but headings, code and links."""
        apart = (nodes.literal, nodes.literal_block, nodes.title, nodes.reference, nodes.raw, nodes.math)
        for text in list(self.document.findall(nodes.Text)):
            node, inside = text.parent, False
            while node is not None and not inside:
                inside, node = isinstance(node, apart), node.parent
            parts = [text.astext()] if inside else SHORT.split(text.astext())
            if len(parts) == 1:
                continue
            new: list[nodes.Node] = []
            for k, part in enumerate(parts):
                if k % 2 == 0:
                    new += [nodes.Text(part)] if part else []
                    continue
                paper = PAPERS[part]
                link = nodes.reference("", paper.cited, refuri=paper.link, internal=False, classes=["paper"])
                link["reftitle"] = f"{paper.authors}: {paper.title}"
                new.append(link)
            text.parent.replace(text, new)


class Papers(Directive):
    """All of them, with the names that pages and code use."""

    def run(self) -> list[nodes.Node]:
        """A list."""
        lines = []
        for short, paper in PAPERS.items():
            lines += [f"**{paper.cited}** (in the code ``{short}``)"]
            lines += [f"  {paper.authors}, `{paper.title} <{paper.link}>`__, {paper.where}: {paper.about}.", ""]
        node = nodes.container()
        self.state.nested_parse(StringList(lines), 0, node)
        return list(node.children)


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx."""
    app.add_directive("papers", Papers)
    app.add_post_transform(Cite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
