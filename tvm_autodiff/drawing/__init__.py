"""Pictures of domains and of graphs as SVG, without a drawing library."""

from .domains import draw_domain
from .graphs import draw_graph
from .svg import Drawing

__all__ = ["Drawing", "draw_domain", "draw_graph"]
