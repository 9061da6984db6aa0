"""Draw docs/images/axes.png: the axes of a small vision transformer (needs the extra vision, and kaleido)."""

from __future__ import annotations

from pathlib import Path

import torch

from intertwine import trace
from intertwine.report.symmetry_page import axes_figure
from intertwine.vision_shim import import_vision


def main() -> None:
    """Trace, draw, write."""
    import_vision("torchvision")
    from torchvision.models import VisionTransformer

    torch.manual_seed(0)
    model = VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=10
    )
    figure = axes_figure(trace(model, torch.zeros(1, 3, 32, 32)))
    target = Path(__file__).resolve().parent.parent / "docs" / "images" / "axes.png"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.write_image(target, width=900, scale=2)


if __name__ == "__main__":
    main()
