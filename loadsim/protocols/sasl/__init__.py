"""SASL (RFC 4422): the client's side of the log-on methods that a scenario can name. Only `tokens` does I/O.

exchange           one log-on as messages: PLAIN, LOGIN, CRAM-MD5, XOAUTH2, OAUTHBEARER, EXTERNAL
scram              SCRAM (RFC 5802, RFC 7677), and the cache of its salted passwords
choice             the choice among the methods that a server offers
tokens             tokens from files, which are read at each log-on
masking            removal of secrets from text that a server sends
authenticate       one log-on from choice to success, for all drivers
"""
