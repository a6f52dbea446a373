"""One session with a server: negotiated, its requests timed, its tasks owned."""
