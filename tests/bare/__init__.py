"""README's first commands on bare Debian machines: `make bare-check`."""
