"""A release: what `make release` checks, cuts and writes. It publishes nothing."""
