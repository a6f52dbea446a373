"""What clients send: their messages, checked and made ready for a chat template."""
