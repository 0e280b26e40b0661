"""torchvision works with this torch: boxes, a picture through PNG, a network's gradient."""

from __future__ import annotations

import sys
from importlib.metadata import version

import torch

try:
    import torchvision
    from torchvision.io import decode_png, encode_png
    from torchvision.ops import nms
except (ImportError, OSError, RuntimeError) as error:
    sys.exit(
        f"error: torchvision {version('torchvision')} does not load with torch "
        f"{torch.__version__} (CUDA {torch.version.cuda or 'none'}): {error}"
    )

device = "cuda" if torch.cuda.is_available() else "cpu"
boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], device=device)
kept = nms(boxes, torch.tensor([0.9, 0.8, 0.7], device=device), iou_threshold=0.5)
assert kept.tolist() == [0, 2], kept

picture = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
assert torch.equal(decode_png(encode_png(picture)), picture)

model = torchvision.models.mobilenet_v3_small(num_classes=3).to(device)
model(torch.rand(2, 3, 32, 32, device=device)).square().sum().backward()
assert all(each.grad is not None for each in model.parameters())
print(f"torchvision {torchvision.__version__} on {device}: boxes, a picture, a gradient are right")
