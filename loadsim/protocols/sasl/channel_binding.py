"""Channel bindings of a TLS connection (RFC 5929): data that only its two ends have in common.

Python has no tls-exporter (RFC 9266), and tls-unique means nothing in TLS 1.3. There,
only tls-server-end-point is left.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl

from loadsim.protocols.sasl.scram import Binding

_HASHES = {
    "1.2.840.113549.1.1.4": "sha256",  # MD5 and SHA-1 count as SHA-256 (RFC 5929 section 4.1)
    "1.2.840.113549.1.1.5": "sha256",
    "1.2.840.10045.4.1": "sha256",
    "1.2.840.113549.1.1.11": "sha256",
    "1.2.840.113549.1.1.12": "sha384",
    "1.2.840.113549.1.1.13": "sha512",
    "1.2.840.113549.1.1.14": "sha224",
    "1.2.840.10045.4.3.1": "sha224",
    "1.2.840.10045.4.3.2": "sha256",
    "1.2.840.10045.4.3.3": "sha384",
    "1.2.840.10045.4.3.4": "sha512",
}
"""The hash of a certificate's signature algorithm. RSASSA-PSS and EdDSA have none by their identifier."""

_SEQUENCE, _OBJECT = 0x30, 0x06


def binding_of(transport: asyncio.BaseTransport | None) -> Binding | None:
    """Return the channel binding of a connection; None without TLS, and if its certificate allows none."""
    secured = transport.get_extra_info("ssl_object") if transport is not None else None
    if not isinstance(secured, ssl.SSLObject):
        return None
    if secured.version() != "TLSv1.3":
        data = secured.get_channel_binding("tls-unique")
        return Binding("tls-unique", data) if data else None
    certificate = secured.getpeercert(binary_form=True)
    return end_point(certificate) if certificate else None


def end_point(certificate: bytes) -> Binding | None:
    """Return the binding tls-server-end-point: a certificate's (DER) hash by its signature's hash algorithm."""
    try:
        _, begin, _ = _element(certificate, 0)
        _, _, signed_end = _element(certificate, begin)
        kind, algorithm, _ = _element(certificate, signed_end)
        named, at, end = _element(certificate, algorithm)
        if (kind, named) != (_SEQUENCE, _OBJECT):
            return None
        hash_name = _HASHES.get(_dotted(certificate[at:end]))
    except IndexError:
        return None
    return Binding("tls-server-end-point", hashlib.new(hash_name, certificate).digest()) if hash_name else None


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, and where its contents begin and end (X.690 section 8.1)."""
    length = data[at + 1]
    begin = at + 2
    if length & 0x80:
        octets = length & 0x7F
        if not 1 <= octets <= 4:
            raise IndexError("no length of a certificate")
        length = int.from_bytes(data[begin : begin + octets], "big")
        begin += octets
    if begin + length > len(data):
        raise IndexError("an element behind the end")
    return data[at], begin, begin + length


def _dotted(content: bytes) -> str:
    """Return an object identifier as numbers and dots (X.690 section 8.19)."""
    numbers, value = [*divmod(content[0], 40)], 0
    for octet in content[1:]:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))
