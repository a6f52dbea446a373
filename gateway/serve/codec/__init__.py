"""The Codec endpoint: token ids as frames over HTTP, and the documents in which clients find maps and versions."""
