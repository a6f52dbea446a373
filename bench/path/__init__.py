"""Token streams through the whole path: client, gateway and engine, each in a process of its own."""
