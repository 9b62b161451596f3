"""MAPI over HTTP, without I/O: requests as values into bytes, and what a server answers into values.

layout                 structures of the documents as dataclasses
codes                  what a server refused
properties, recipients, notifications
rops                   remote operations
rop_buffer             operations with their handles into the buffer of an Execute, and its responses
bodies                 bodies of HTTP requests and responses
"""
