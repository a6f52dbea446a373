"""What all engines that are reached over HTTP share: connections, streams of lines, errors, the life of a client."""
