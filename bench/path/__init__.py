"""Token streams through the whole path: client, gateway, engine, each a process of its own."""
