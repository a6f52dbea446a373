"""The families of models, declared in files of those that write calls alike; `registry` lists them."""
