"""MAPI over HTTP, without I/O: requests as values into bytes, and what a server answers into values.

layout                 structures of the documents as dataclasses
codes                  what a server refused
properties             values and rows
rops                   remote operations
rop_buffer             operations with their handles into the buffer of an Execute; its responses, and events
bodies                 bodies of HTTP requests and responses
"""
