"""From settings to an engine that may be used: connected, its map proven, and watched."""
