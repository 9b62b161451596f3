"""`loadsim plan`: a whole run in virtual time, without a server."""
