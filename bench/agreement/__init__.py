"""`codec-gateway bench` beside this repository's own benches: do both measure the same?"""
