"""What the communication of a group of ranks takes, by a model of its links.

```python
import gear.emu as emu

links = emu.Links.load("hgx-h100")
curve = emu.ask(emu.model("two_level"), "all_reduce", emu.Shape(8, nodes=64), links)
print(curve.at(256 << 20))
```

A model is a function; links are numbers, each with its source; a curve says how sure each of its
points is (`BASES`).
"""

import os

from gear.emu.events import Dead, Jitter, LinkChange, Slow
from gear.emu.install import install, is_hooked, register
from gear.emu.job import Job
from gear.emu.models.curve import BASES, OPERATIONS, Curve, Point
from gear.emu.models.curve_file import read_curves, write_curves
from gear.emu.models.links import Beside, Footprint, Links, Measured, Number
from gear.emu.models.model import Model, ask, model
from gear.emu.models.shape import Shape
from gear.emu.models.two_level import two_level
from gear.emu.present import current
from gear.emu.report import Operation, Report, report
from gear.emu.start import start
from gear.emu.steps import step
from gear.emu.transport import emulate

__all__ = [
    "BASES",
    "OPERATIONS",
    "Beside",
    "Curve",
    "Dead",
    "Footprint",
    "Jitter",
    "Job",
    "LinkChange",
    "Links",
    "Measured",
    "Model",
    "Number",
    "Operation",
    "Point",
    "Report",
    "Shape",
    "Slow",
    "ask",
    "current",
    "emulate",
    "install",
    "model",
    "read_curves",
    "report",
    "start",
    "step",
    "two_level",
    "write_curves",
]

# Of a job: torch.distributed is told before it is asked; the hook does it when that is imported.
if os.environ.get("GEAR_EMU") and not is_hooked():
    register()
