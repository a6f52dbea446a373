"""Messages into prompt ids by the model's chat template, with everything that others wrote as ordinary text."""
