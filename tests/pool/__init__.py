"""A pool of real engines under load, with engines that are killed, hang, and are exchanged."""
