"""`/v1/responses`: answers as items, and what is stored of them."""
