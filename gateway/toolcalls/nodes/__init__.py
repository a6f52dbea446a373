"""What a call format is put together from: each node reads one part of a message and gives the grammar of it."""
