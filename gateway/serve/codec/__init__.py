"""The Codec face: token ids as frames over HTTP, and the documents by which clients find maps and versions."""
