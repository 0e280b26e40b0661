"""The network interface by which this machine reaches another."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
import time
from functools import partial
from pathlib import Path

from gear.distributed.calls import Late, in_time

SIOCGIFADDR = 0x8915  # linux/sockios.h
RESOLVE_S = 6.0  # for the address of a name: a resolver asks its second server after 5
IPV6 = Path("/proc/net/if_inet6")  # address, number, prefix, scope, flags, name


def interface_towards(host: str) -> str:
    """Its name, as in ``"eth0"``; ``""``: nothing is known of that host. Nothing is sent to it."""
    look_up = partial(socket.getaddrinfo, host, 9, type=socket.SOCK_DGRAM)
    try:
        found = in_time(time.monotonic() + RESOLVE_S, look_up, "")
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            own = str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, Late):
        return ""
    names = _of_ipv6() if family == socket.AF_INET6 else _of_ipv4()
    return names.get(own, "")


def _of_ipv4() -> dict[str, str]:
    """Names of interfaces by address."""
    names: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                told = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                names[socket.inet_ntoa(told[20:24])] = name
    return names


def _of_ipv6() -> dict[str, str]:
    lines = [line.split() for line in IPV6.read_text().splitlines()]
    return {str(ipaddress.IPv6Address(int(words[0], 16))): words[5] for words in lines}
