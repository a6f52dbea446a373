"""The project's pages, as this installation has them: found, named, and turned into what a reader sees."""
