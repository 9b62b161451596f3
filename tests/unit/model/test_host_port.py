"""Addresses: a host that is written before a port is read again."""

import pytest

from loadsim.cluster.address import control_address
from loadsim.model.host_port import bracketed, host_and_port


@pytest.mark.parametrize(
    ("host", "written"), [("mail.example.test", "mail.example.test"), ("192.0.2.1", "192.0.2.1"), ("::1", "[::1]")]
)
def test_a_formatted_host_and_port_is_parsed_again(host: str, written: str) -> None:
    assert bracketed(host) == written
    assert host_and_port(f"{written}:143") == (host, 143)
    address = control_address(f"{written}:8786")
    assert address.host == host
    assert (str(address), address.for_dask) == (f"{written}:8786", f"tcp://{written}:8786")


@pytest.mark.parametrize(("port", "found"), [("00014312", 14312), ("0000080", 80), ("065535", 65535), ("0", 0)])
def test_zeros_before_a_port_are_skipped(port: str, found: int) -> None:
    assert host_and_port(f"a:{port}") == ("a", found)
    assert host_and_port(port, "a") == ("a", found)


@pytest.mark.parametrize("port", ["65536", "0065536", "9" * 5000])
def test_a_port_above_65535_is_rejected(port: str) -> None:
    with pytest.raises(ValueError, match="at most 65535"):
        host_and_port(f"a:{port}")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("::1", "; an IPv6 address needs brackets: [::1]"),
        ("2001:db8::1", "; an IPv6 address needs brackets: [::1]"),
        ("localhost", "; the port is missing"),
        ("8080", "; the host is missing"),
        ("a b:1", ""),
    ],
)
def test_malformed_addresses_are_rejected(text: str, wrong: str) -> None:
    with pytest.raises(ValueError) as refused:
        host_and_port(text)
    assert str(refused.value) == wrong
