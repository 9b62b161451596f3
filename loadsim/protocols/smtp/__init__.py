"""SMTP submission (RFC 5321, RFC 6409), and LMTP (RFC 2033) for mail from outside.

    submission      the port: when to connect, to keep a connection, and to leave
    session         the log-on, and the order of a message's commands
    library         the same through the library aiosmtplib
    connection      a socket, the commands under way, time limits
    commands        commands and messages as bytes
    wire            replies from the stream; acceptance of a message, and names of refusals

`commands` and `wire` do no I/O. These sub-timings are reported. QUIT is not, as users wait only for the acceptance.

    SMTP CONNECT, EHLO, [STARTTLS, EHLO,] [AUTH]    once per connection; CONNECT includes implicit TLS and the greeting
    SMTP MAIL, RCPT, ... RCPT, DATA                 once per message; DATA ends with the acceptance
    LMTP CONNECT, LHLO, MAIL, RCPT, DATA            likewise; DATA ends with the reply for the last accepted recipient
"""
