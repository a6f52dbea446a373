"""The token ids of conversations: what clients send, what is remembered, and the prompt that both make."""
