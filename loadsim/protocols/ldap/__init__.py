"""The address book by LDAP (RFC 4511)."""
