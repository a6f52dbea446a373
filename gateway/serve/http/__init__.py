"""The HTTP server before every route: sockets, connections and their bounds, bodies, errors, the drain."""
