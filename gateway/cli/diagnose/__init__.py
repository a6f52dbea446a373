"""What `doctor` and `call` find out: every server tried, or one tool called once."""
