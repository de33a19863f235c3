"""The diagram of HCDC (fig:schematic): what is trained on what, and what is compared."""

from __future__ import annotations

from typing import Any

from hcdc.reporting import new_figure

BLUE, ORANGE, GREY, WHITE = "#E3EEF6", "#FBE6D8", "#EFEFEF", "#FFFFFF"
BOXES: dict[str, tuple[float, float, float, str, str]] = {
    "t_train": (1.0, 4.6, 1.7, "T_train", BLUE),
    "t_val": (1.0, 3.7, 1.7, "T_val", BLUE),
    "s_train": (1.0, 1.6, 1.7, "S_train, fixed", ORANGE),
    "s_val": (1.0, 0.7, 1.7, "S_val, learned", ORANGE),
    "theta_t": (4.0, 4.4, 2.3, "theta trained on\nT_train at lambda", WHITE),
    "theta_s": (4.0, 1.4, 2.3, "theta trained on\nS_train at lambda", WHITE),
    "lam": (4.0, 2.9, 2.3, "lambdas on paths\nthrough the space", GREY),
    "g_t": (7.1, 4.0, 2.3, "hypergradient on T\ndirect + implicit (IFT)", WHITE),
    "g_s": (7.1, 1.0, 2.3, "hypergradient on S\ndirect + implicit (IFT)", WHITE),
    "d": (9.7, 2.5, 1.7, "distance\n1 - cosine\n(HCDC)", GREY),
}
"""Centre, width, words and colour of every box."""
HEIGHT = 0.78
ARROWS = (
    ("t_train", "theta_t"), ("t_val", "g_t"), ("s_train", "theta_s"), ("s_val", "g_s"), ("lam", "theta_t"),
    ("lam", "theta_s"), ("theta_t", "g_t"), ("theta_s", "g_s"), ("g_t", "d"), ("g_s", "d"),
)  # fmt: skip


def draw_pipeline() -> Any:
    """The diagram; the dashed arrow is the only step that changes data."""
    from matplotlib.patches import Rectangle

    figure = new_figure(9.6, 4.6)
    axes = figure.add_subplot(1, 1, 1)
    axes.set_xlim(0, 10.7)
    axes.set_ylim(-0.4, 5.4)
    axes.set_axis_off()
    for x, y, width, words, colour in BOXES.values():
        corner = x - width / 2, y - HEIGHT / 2
        axes.add_patch(Rectangle(corner, width, HEIGHT, facecolor=colour, edgecolor="#444444", zorder=2))
        axes.text(x, y, words, ha="center", va="center", fontsize=8.5, zorder=3)
    for words, y in (("original data T", 5.12), ("copy S", 2.12)):
        axes.text(1.0, y, words, ha="center", fontsize=10, fontweight="bold")
    for source, target in ARROWS:
        _arrow(axes, source, target)
    way = {"color": "#D55E00", "linestyle": "--", "linewidth": 1.6}
    axes.plot([9.7, 9.7, 1.0], [2.5 - HEIGHT / 2, -0.15, -0.15], **way)
    axes.annotate("", (1.0, 0.7 - HEIGHT / 2), (1.0, -0.2), arrowprops={"arrowstyle": "-|>", **way})
    axes.text(5.4, -0.08, "gradient of the distance in S_val", ha="center", va="bottom", color="#B34700")
    return figure


def _arrow(axes: Any, source: str, target: str) -> None:
    """An arrow from the side of one box to the side of another."""
    x, y, width, *_ = BOXES[source]
    to_x, to_y, to_width, *_ = BOXES[target]
    if x == to_x:
        up = 1 if to_y > y else -1
        start, end = (x, y + up * HEIGHT / 2), (to_x, to_y - up * HEIGHT / 2)
    else:
        start, end = (x + width / 2, y), (to_x - to_width / 2, to_y)
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#444444", "linewidth": 1.2})
