"""A JMAP server for tests, written from RFC 8620 and RFC 8621 without a look at loadsim's driver."""

from .server import Peer, Replace, jmap_peer
from .store import User
from .switches import Limits, Switches

__all__ = ["Limits", "Peer", "Replace", "Switches", "User", "jmap_peer"]
