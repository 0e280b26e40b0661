"""Links of machines that others have measured: value, basis and source of each number."""

from __future__ import annotations

from collections.abc import Mapping

_TUNING = "NVIDIA/nccl, src/graph/tuning.cc (2.2x): what NCCL itself reckons with"
_REFERENCE = "the reference design: a 400 Gb/s card a GPU"
_DGX_A100 = "the reference design: eight 200 Gb/s cards for eight GPUs"

Numbers = Mapping[str, tuple[float, str, str]]


def _published(source: str, **numbers: float) -> dict[str, tuple[float, str, str]]:
    return {
        name.replace("__", "."): (value, "published", source) for name, value in numbers.items()
    }


_PROTOCOLS: Numbers = {
    **_published(_TUNING, ll__base_us=6.6, ll128__base_us=14.0, simple__base_us=8.4),
    **_published(_TUNING, ll__nvlink_us=0.6, ll128__nvlink_us=1.9, simple__nvlink_us=3.4),
    **_published(_TUNING, ll__nic_us=2.7, ll128__nic_us=4.0, simple__nic_us=14.0),
    **_published(_TUNING, ll__tree_us=5.0, ll128__tree_us=8.5, simple__tree_us=14.0),
    **_published(_TUNING, ll__share=0.25, ll128__share=0.92),
    **_published("all of a link", simple__share=1.0),
}

_NVLS = "NVIDIA/nccl #1455: all_reduce_perf of 2 to 4 GiB on 5 to 8 H100"

READY: Mapping[str, Numbers] = {
    "hgx-h100": {
        **_PROTOCOLS,
        **_published(
            "NVIDIA/nccl-tests #212, NVIDIA/nccl #1455: 365 to 370 of 450 by ring, 2 to 8 GPUs",
            nvlink__gb_per_s=368.0,
        ),
        **_published("NVIDIA/nccl-tests #290: 46 to 48 of a 400 Gb/s NIC", nic__gb_per_s=47.0),
        **_published(_REFERENCE, nic__per_node=8),
        **_published(_TUNING, nvls__base_us=25.0, nvls_tree__base_us=25.0, nvls_tree__hop_us=14.0),
        **_published(
            _NVLS,
            nvls__gb_per_s__5=420.0,
            nvls__gb_per_s__6=440.0,
            nvls__gb_per_s__7=460.0,
            nvls__gb_per_s__8=480.0,
        ),
        **_published("NVIDIA/nccl #1649: 370 to 380 over several nodes", nvls_tree__gb_per_s=375.0),
    },
    "dgx-a100": {
        **_PROTOCOLS,
        **_published(f"{_TUNING}, for compute capability 8.0", nvlink__gb_per_s=235.0),
        **_published("NVIDIA/nccl #1576: 192 by eight NICs of 200 Gb/s", nic__gb_per_s=24.0),
        **_published(_DGX_A100, nic__per_node=8),
    },
}
