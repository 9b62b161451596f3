"""Addresses: a host that is written before a port is read again."""

from __future__ import annotations

import pytest

from loadsim.cluster.address import control_address
from loadsim.model.host_port import bracketed, host_and_port


@pytest.mark.parametrize(
    ("host", "written"), [("mail.example.test", "mail.example.test"), ("192.0.2.1", "192.0.2.1"), ("::1", "[::1]")]
)
def test_a_written_host_is_read_again(host: str, written: str) -> None:
    """An IPv6 address in brackets, others as they are."""
    assert bracketed(host) == written
    assert host_and_port(f"{written}:143") == (host, 143)
    address = control_address(f"tls://{written}:8786")
    assert address.host == host
    assert str(address) == f"tls://{written}:8786"
