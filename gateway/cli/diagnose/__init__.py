"""What `doctor`, `check` and `call` find out: each server tried, each tool called once."""
