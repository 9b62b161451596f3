"""Codes of refused requests (MS-OXCDATA section 2.4, MS-OXCMAPIHTTP section 2.2.3.3.3)."""

from __future__ import annotations

from dataclasses import dataclass

ERRORS_RETURNED = 0x00040380
"""A warning: the response still has its usual fields."""

NULL_DESTINATION = 0x00000503
BUFFER_TOO_SMALL = 0x0000047D
SERVER_BUSY = 0x00000480
WRONG_SERVER = 0x00000478
PARTIAL = 0x00040680
NOT_FOUND = 0x8004010F

_NAMES = {
    0x000003EB: "ecUnknownUser",
    0x000003EF: "ecUnknownCodePage",
    0x000003F2: "ecLoginPerm",
    WRONG_SERVER: "ecWrongServer",
    BUFFER_TOO_SMALL: "ecBufferTooSmall",
    0x0000047F: "ecServerPaused",
    SERVER_BUSY: "ecServerBusy",
    0x000004B9: "ecNullObject",
    0x000004D9: "ecQuotaExceeded",
    NULL_DESTINATION: "ecDstNullObject",
    0x0000050A: "ecMaxSubmissionExceeded",
    0x0000050C: "ecMailboxInTransit",
    0x0000096C: "ecMailboxDisabled",
    0x000004BA: "ecNoCreateRight",
    ERRORS_RETURNED: "ecWarnWithErrors",
    PARTIAL: "ecPartialCompletion",
    0x80004005: "ecError",
    0x80040102: "ecNotSupported",
    0x80040106: "ecUnknownFlags",
    0x80040108: "ecInvalidObject",
    0x80040109: "ecObjectModified",
    0x8004010A: "ecObjectDeleted",
    NOT_FOUND: "ecNotFound",
    0x80040111: "ecLoginFailure",
    0x80040115: "ecNetwork",
    0x80040305: "ecTooBig",
    0x80040403: "ecNotInitialized",
    0x80040604: "ecDuplicateName",
    0x80040607: "ecMessageCycle",
    0x80040700: "ecAmbiguousRecip",
    0x80070005: "ecAccessDenied",
    0x8007000E: "ecMemory",
    0x80070057: "ecInvalidParameter",
}


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A request or a property's value that the server refused; `line` has details."""

    code: int
    line: str = ""

    @property
    def name(self) -> str:
        """The code's name in the documents, or its number as "0x" and eight digits."""
        return _NAMES.get(self.code, f"0x{self.code:08X}")
