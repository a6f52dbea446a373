"""The wire measured: bytes, delay and CPU of token streams in every format, coding and flush policy."""
