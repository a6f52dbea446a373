"""What engines that are reached over HTTP have in common: connections, streams of lines, errors, a client's life."""
