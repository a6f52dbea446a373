"""Who is asking, and how much they may ask: keys, access tokens, the gateway's own token, hosts and rates."""
