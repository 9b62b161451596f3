"""Hostile servers: a man in the middle between loadsim's users and the embedded server, in virtual time.

    loop        an event loop in virtual time whose connections are pairs of sockets
    server      pymap and aiosmtpd on that loop, and a list of what they took
    acts        what a fault does with one answer of the server
    links       one connection in the middle: IMAP and SMTP, just enough of them to find commands and answers
    imap_faults, smtp_faults    the declared faults
    cases       one engine run with one fault, and what has to hold of it
    page        the tables of recorded.md

`make hostile` runs each fault by itself and writes the tables.
"""
