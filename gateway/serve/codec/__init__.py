"""The Codec endpoint: token ids as frames over HTTP, and the documents by which clients find maps and versions."""
