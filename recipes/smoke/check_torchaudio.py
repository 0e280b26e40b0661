"""torchaudio works with this torch: a tone keeps its pitch, and its own compiled operators run."""

from __future__ import annotations

import math
import sys
from importlib.metadata import version

import torch

try:
    import torchaudio
    from torchaudio import functional
except (ImportError, OSError, RuntimeError) as error:
    sys.exit(
        f"error: torchaudio {version('torchaudio')} does not load with torch "
        f"{torch.__version__} (CUDA {torch.version.cuda or 'none'}): {error}"
    )

device = "cuda" if torch.cuda.is_available() else "cpu"
seconds = torch.arange(16000, device=device) / 16000
tone = torch.sin(2 * math.pi * 440 * seconds)
slower = functional.resample(tone, 16000, 8000)
assert slower.shape == (8000,), slower.shape
assert torch.fft.rfft(slower).abs().argmax().item() == 440

impulse = torch.tensor([[1.0, 0.0, 0.0, 0.0]], device=device)
poles = torch.tensor([1.0, -0.5], device=device)
zeros = torch.tensor([1.0, 0.0], device=device)
answer = functional.lfilter(impulse, poles, zeros, clamp=False)
assert torch.allclose(answer.cpu(), torch.tensor([[1.0, 0.5, 0.25, 0.125]])), answer

log_probs = torch.tensor([[[0.1, 0.9], [0.9, 0.1]]], device=device).log()
path, _ = functional.forced_align(log_probs, torch.tensor([[1]], dtype=torch.int32, device=device))
assert path.tolist() == [[1, 0]], path
print(f"torchaudio {torchaudio.__version__} on {device}: a tone, a filter, an alignment are right")
