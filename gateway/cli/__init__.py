"""Commands: each file parses, calls one package and prints. `app.py` lists them."""
