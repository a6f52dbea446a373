"""What a server lists, item by item: read, normalised, judged and pinned."""
