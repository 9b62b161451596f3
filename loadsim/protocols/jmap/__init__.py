"""JMAP (RFC 8620, RFC 8621): reading without I/O (`values`, `resource`, `calls`, `mail`, `events`), and the driver."""
