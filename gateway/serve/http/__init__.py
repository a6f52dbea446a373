"""The HTTP server in front of every route: sockets, connections and their bounds, bodies, errors, the drain."""
