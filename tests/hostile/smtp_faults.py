"""The faults of the SMTP server: a name, a sentence for the table, the command, the act.

Where the reply to a message's end (`.`) is no acceptance, the strike takes the message: the server never gets it, and
a driver that counts it as accepted is found out.
"""

# ruff: noqa: E501 - a fault is a line of a table
from loadsim.model.mail_program import AIOSMTPLIB

from .acts import Act, Fault, Strike, ahead, behind, closes, cuts, drops, edits, floods, hangs, resets, says, trickles
from .imap_faults import GARBAGE, handshake

ENDLESS = b"250-and so on\r\n"
REFUSED = Strike(".", says(b"554 5.7.1 no\r\n"), takes=True)
"""The message is refused: what counts as its acceptance is another command's reply."""


def _fault(name: str, about: str, at: str, act: Act, **more: object) -> Fault:
    return Fault(name, about, (Strike(at, act),), **more)  # type: ignore[arg-type]


def _end(name: str, about: str, act: Act, **more: object) -> Fault:
    """Do this at the end of a message, which the server never gets."""
    return Fault(name, about, (Strike(".", act, takes=True),), **more)  # type: ignore[arg-type]


# fmt: off
SMTP_FAULTS = (
    # --- the greeting ---
    _fault("greeting closed", "closes instead of a greeting", "GREETING", closes()),
    _fault("greeting reset", "resets instead of a greeting", "GREETING", resets()),
    _fault("greeting missing", "sends no greeting and stays", "GREETING", hangs()),
    _fault("greeting trickles", "sends a greeting without end, a byte a second", "GREETING", trickles(b"220-x\r\n")),
    _fault("greeting garbage", "sends all byte values", "GREETING", says(GARBAGE + b"\r\n")),
    _fault("greeting 554", "wants no mail", "GREETING", says(b"554 no\r\n")),
    _fault("greeting 000", "greets with code 000", "GREETING", says(b"000 hello\r\n")),
    _fault("greeting of IMAP", "greets as an IMAP server", "GREETING", says(b"* OK ready\r\n")),
    _fault("greeting of two codes", "changes the code within its greeting", "GREETING", says(b"220-a\r\n554 b\r\n")),
    _fault("greeting endless", "sends greeting lines without end", "GREETING", floods(b"220-and so on\r\n"), most=2),
    _fault("greeting of one line", "sends a line without end", "GREETING", floods(b"x", b"220 "), most=2),
    _fault("greeting of NULs", "sends NUL bytes", "GREETING", says(b"\0" * 4096 + b"\r\n")),
    # --- EHLO ---
    _fault("EHLO refused", "refuses EHLO and HELO", "EHLO|HELO", says(b"500 what\r\n")),
    _fault("EHLO hangs", "never answers EHLO", "EHLO", hangs()),
    _fault("EHLO endless", "names extensions without end", "EHLO", floods(ENDLESS), most=2),
    _fault("EHLO of 20,000 lines", "names 20,000 extensions", "EHLO", ahead(ENDLESS * 20_000)),
    _fault("SIZE odd", "sends SIZE abc", "EHLO", edits(rb"SIZE \d+", b"SIZE abc")),
    _fault("SIZE of 80 bits", "sends SIZE 10^24", "EHLO", edits(rb"SIZE \d+", b"SIZE 1" + b"0" * 24)),
    _fault("AUTH unknown", "offers no mechanism that anybody knows", "EHLO", edits(rb"AUTH [A-Z ]+", b"AUTH X-ODD")),
    _fault("EHLO surplus", "answers EHLO twice", "EHLO", behind(b"250 again\r\n")),
    # --- AUTH ---
    _fault("AUTH refused", "refuses the log-on", "AUTH", says(b"535 5.7.8 no\r\n")),
    _fault("AUTH challenged", "sends challenges without end", "AUTH", floods(b"334 \r\n"), most=2),
    _fault("AUTH hangs", "never answers AUTH", "AUTH", hangs()),
    _fault("AUTH 000", "answers AUTH with code 000", "AUTH", says(b"000 in\r\n")),
    # --- MAIL, RCPT ---
    _fault("MAIL closed", "closes at MAIL", "MAIL", closes()),
    _fault("MAIL 421", "ends the connection with 421", "MAIL", cuts(99, b"421 4.3.2 too busy\r\n")),
    _fault("MAIL hangs", "never answers MAIL", "MAIL", hangs()),
    _fault("MAIL 999", "answers with code 999", "MAIL", says(b"999 fine\r\n")),
    _fault("MAIL garbage", "answers with all byte values", "MAIL", says(GARBAGE + b"\r\n")),
    _fault("MAIL of 8 MB", "answers with a line of 8 MB", "MAIL", says(b"250 " + b"x" * 8_000_000 + b"\r\n")),
    _fault("MAIL without reply", "leaves out the reply to MAIL", "MAIL", drops()),
    Fault("MAIL surplus", "replies twice to MAIL, and refuses the message", (Strike("MAIL", behind(b"250 again\r\n")), REFUSED)),
    _fault("RCPT 550", "refuses recipients", "RCPT", says(b"550 5.1.1 no\r\n")),
    _fault("RCPT resets", "resets at RCPT", "RCPT", resets()),
    _fault("RCPT 354", "answers RCPT with 354", "RCPT", says(b"354 go on\r\n")),
    _fault("RCPT without reply", "leaves out the reply to RCPT", "RCPT", drops()),
    Fault("RCPT surplus", "replies twice to RCPT, and refuses the message", (Strike("RCPT", behind(b"250 again\r\n")), REFUSED)),
    # --- DATA ---
    _fault("DATA refused", "refuses DATA", "DATA", says(b"451 later\r\n")),
    _fault("DATA hangs", "never answers DATA", "DATA", hangs()),
    _fault("DATA 250", "answers DATA with 250", "DATA", says(b"250 fine\r\n")),
    _fault("DATA 000", "answers DATA with code 000", "DATA", says(b"000 go on\r\n")),
    Fault("DATA surplus", "sends 354 and 250 to DATA, and refuses the message", (Strike("DATA", behind(b"250 fine\r\n")), REFUSED), deceives=(AIOSMTPLIB,)),
    Fault("DATA 354 twice", "sends 354 twice, and refuses the message", (Strike("DATA", behind(b"354 go on\r\n")), REFUSED)),
    # --- the end of a message, which the server never gets ---
    _end("end closed", "closes at the end of the message", closes()),
    _end("end reset", "resets at the end of the message", resets()),
    _end("end hangs", "never answers the message", hangs()),
    Fault("end missing", "answers not the message, but QUIT", (Strike(".", drops(), takes=True),)),
    Fault("end missing, alone", "answers not the message, but QUIT, on connections of one message", (Strike(".", drops(), takes=True),), connection="per-message"),
    _end("end 221", "answers the message with 221", cuts(99, b"221 bye\r\n")),
    _end("end 451", "refuses the message for now", says(b"451 4.3.0 later\r\n")),
    _end("end 554", "refuses the message", says(b"554 5.7.1 no\r\n")),
    _end("end 000", "answers with code 000", says(b"000 fine\r\n")),
    _end("end 25", "answers with code 25", says(b"25 fine\r\n")),
    _end("end 2500", "answers with code 2500", says(b"2500 fine\r\n"), deceives=(AIOSMTPLIB,)),
    _end("end 150", "answers with code 150", says(b"150 wait\r\n")),
    _end("end 354", "answers with 354 again", says(b"354 go on\r\n")),
    _end("end garbage", "answers with all byte values", says(GARBAGE + b"\r\n")),
    _end("end of two codes", "changes the code within its answer", says(b"250-fine\r\n554 no\r\n")),
    _end("end unfinished", "closes within its answer", cuts(99, b"250-fine\r\n")),
    _end("end cut", "closes within a line of its answer", cuts(6, b"250 fine\r\n")),
    _end("end endless", "answers with lines without end", floods(ENDLESS), most=2),
    _end("end and 250", "refuses, then accepts", says(b"554 no\r\n250 fine\r\n")),
    _end("mail lost", "accepts the message and drops it", says(b"250 fine\r\n"), lies=True),
    Fault("end accepted, then 421", "accepts the message, then ends the connection", (Strike(".", behind(b"421 bye\r\n")),)),
    # --- RSET, QUIT ---
    Fault("RSET hangs", "refuses recipients, and never answers RSET", (Strike("RCPT", says(b"550 no\r\n")), Strike("RSET", hangs()))),
    Fault("RSET refused", "refuses recipients and RSET", (Strike("RCPT", says(b"550 no\r\n")), Strike("RSET", says(b"500 no\r\n")))),
    _fault("QUIT hangs", "never answers QUIT", "QUIT", hangs(), connection="per-message"),
    _fault("QUIT closed", "closes at QUIT", "QUIT", closes(), connection="per-message"),
    _fault("QUIT floods", "answers QUIT with lines without end", "QUIT", floods(b"221-bye\r\n"), connection="per-message", most=2),
    _fault("QUIT garbage", "answers QUIT with all byte values", "QUIT", says(GARBAGE), connection="per-message"),
    # --- STARTTLS ---
    Fault("STARTTLS missing", "does not offer STARTTLS", (Strike("EHLO", edits(rb"250-STARTTLS\r\n", b"")),), tls=True),
    _fault("STARTTLS refused", "refuses STARTTLS", "STARTTLS", says(b"454 no\r\n"), tls=True),
    _fault("STARTTLS injected", "sends an answer to EHLO in the clear behind its 220", "STARTTLS", behind(b"250-mail\r\n250 AUTH PLAIN\r\n"), tls=True),
    _fault("handshake garbage", "sends garbage for a handshake", "STARTTLS", handshake(says(GARBAGE)), tls=True),
    _fault("handshake hangs", "never answers the handshake", "STARTTLS", handshake(hangs()), tls=True),
    _fault("handshake closed", "closes within the handshake", "STARTTLS", handshake(closes()), tls=True),
)
# fmt: on
