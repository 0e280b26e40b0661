"""Finetunes torchvision's ResNet-50 under DistributedDataParallel: on a folder of images if one is
given, else on images that are made up. Needs torchvision."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from progress import Progress, add_options
from ranks import Failed, Ranks, parser_of, run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# Of ImageNet's images, by which published weights expect them to be scaled.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COARSE = 4  # a made-up class has a colour in each of so many by so many fields


def parser() -> ArgumentParser:
    parser = parser_of(__doc__)
    add_options(parser, steps=30, batch_size=16, rate=0.01, below=0.5)
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="to begin with: a state dict of torchvision's resnet50, as torch.save writes it; the "
        "last layer is made anew where it has other classes (default: random weights)",
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="with a folder of images for each class (default: made-up images)",
    )
    data.add_argument("--image-size", type=int, default=64, help="height and width; 224 is usual")
    data.add_argument("--classes", type=int, default=10, help="of made-up images")
    data.add_argument("--made-up", type=int, default=1000, help="how many images to make up")
    data.add_argument("--workers", type=int, default=0, help="processes of a rank that read images")
    return parser


class MadeUp(Dataset[tuple[Tensor, int]]):
    """Noise over a few coloured fields, which tell the class. Each is made when it is asked for."""

    def __init__(self, count: int, classes: int, side: int, seed: int) -> None:
        self._count, self._side, self._seed = count, side, seed
        generator = torch.Generator().manual_seed(seed)
        self._fields = torch.randn(classes, 3, COARSE, COARSE, generator=generator)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % len(self._fields)
        generator = torch.Generator().manual_seed(self._seed * self._count + index)
        noise = torch.randn(3, self._side, self._side, generator=generator)
        return noise + F.interpolate(self._fields[label][None], self._side)[0], label


def train(options: Namespace, ranks: Ranks) -> list[float]:
    """The mean loss over the ranks of each step."""
    vision = ranks.together(_torchvision)
    share = ranks.share(options.batch_size)
    images, classes = ranks.together(lambda: _images(options, vision))
    ranks.say(f"{len(images)} images of {classes} classes: {options.data or 'made up'}")
    torch.manual_seed(options.seed)
    network = ranks.together(lambda: _network(options.weights, classes, vision))
    ranks.say(f"ResNet-50 from {options.weights or 'random weights'}")
    model = DistributedDataParallel(network.to(ranks.device), process_group=ranks.group)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    progress = Progress(ranks, options, "images")
    for inputs, labels in _batches(images, share, options, ranks):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if progress.step(loss):
            break
    progress.finish(model)
    return progress.losses


def _torchvision() -> ModuleType:
    """With its models, data sets and transforms.

    Raises:
        Failed: it is not installed, or does not load with this torch.
    """
    have = f"torch=={torch.__version__}"
    try:
        try:
            import torchvision
        except RuntimeError:
            # A build for another kind of torch (CUDA, CPU): its compiled operators cannot be
            # loaded, and it describes two of them to torch all the same. ResNet-50 needs none.
            for name in ("nms", "qnms"):
                torch.library.define(
                    f"torchvision::{name}", "(Tensor dets, Tensor scores, float t) -> Tensor"
                )
            import torchvision
    except ModuleNotFoundError as error:
        raise Failed(
            f"there is no {error.name} here: pip install torchvision '{have}' takes the one that "
            "was made for this torch and leaves torch as it is"
        ) from error
    except (ImportError, RuntimeError) as error:
        raise Failed(
            f"torchvision does not load with torch {torch.__version__}: {error}: install the one "
            f"that was made for it: pip install torchvision '{have}'"
        ) from error
    module: ModuleType = torchvision
    return module


def _network(weights: Path | None, classes: int, vision: Any) -> nn.Module:
    # Each block begins as the identity: with random weights the loss would rise to three times
    # what it was at first, and fall only then. Weights that are given replace these.
    network: nn.Module = vision.models.resnet50(num_classes=classes, zero_init_residual=True)
    if weights is None:
        return network
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        own = network.state_dict()
        kept = {
            name: value
            for name, value in state.items()
            if not name.startswith("fc.") or value.shape == own[name].shape
        }
        missing, unknown = network.load_state_dict(kept, strict=False)
    except Exception as error:  # torch.load raises what the bytes of a file make it
        raise Failed(f"--weights {weights}: no state dict of ResNet-50: {error}") from error
    wrong = [*(name for name in missing if not name.startswith("fc.")), *unknown]
    if wrong:
        raise Failed(f"--weights {weights}: no state dict of ResNet-50: {wrong[0]} does not fit")
    return network


def _images(options: Namespace, vision: Any) -> tuple[Any, int]:
    """A data set, and its number of classes."""
    side = options.image_size
    if side < 32:
        raise Failed(f"--image-size {side}: ResNet-50 halves images five times: give 32 or more")
    if options.data is None:
        images = MadeUp(options.made_up, options.classes, side, options.seed)
        return images, options.classes
    make = vision.transforms
    change = make.Compose(
        [
            make.RandomResizedCrop(side),
            make.RandomHorizontalFlip(),
            make.ToTensor(),
            make.Normalize(MEAN, DEVIATION),
        ]
    )
    try:
        found = vision.datasets.ImageFolder(options.data, change)
    except OSError as error:
        raise Failed(f"--data {options.data}: {error}") from error
    return found, len(found.classes)


def _batches(
    images: Any, share: int, options: Namespace, ranks: Ranks
) -> Iterator[tuple[Tensor, Tensor]]:
    """Without an end: epoch after epoch, each in an order of its own."""
    if len(images) < options.batch_size:
        raise Failed(f"{len(images)} images make no batch of {options.batch_size}: --batch-size")
    sampler: DistributedSampler[Any] = DistributedSampler(
        images, ranks.size, ranks.rank, seed=options.seed
    )
    # The last batch of an epoch, if it is smaller, is left out: one image has no batch's mean.
    loader = DataLoader(images, share, sampler=sampler, num_workers=options.workers, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            yield inputs.to(ranks.device), labels.to(ranks.device)
        epoch += 1


if __name__ == "__main__":
    sys.exit(run("imagenet", parser(), train))
