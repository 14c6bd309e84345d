"""Pictures of integer domains, before and after the solver: ``python docs/draw_domains.py``.

The SVG files are kept in the repository, and tests/test_domain_pictures.py draws them again.
"""

from __future__ import annotations

from pathlib import Path

from tvm import te

from tvm_autodiff import draw_domain
from tvm_autodiff.domain import Domain

FOLDER = Path(__file__).parent / "explanation"


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    i, j, k = te.var("i"), te.var("j"), te.var("k")
    strided = Domain((i, k), {i: (0, 8), k: (0, 3), j: (0, 17)}, ((2 * i + k).equal(j),))
    triangle = Domain((i, k), {i: (0, 9), k: (0, 9)}, (i + 2 * k <= 5,))
    return {
        "domain_stride.svg": draw_domain(strided, [{j: 6}, {j: 7}], solved=True).svg,
        "domain_triangle.svg": draw_domain(triangle, solved=True).svg,
    }


def main() -> None:
    """Write the pictures beside the pages that show them."""
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
