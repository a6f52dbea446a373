"""Reads tool calls from token ids, and makes the grammars and texts that have a model write them. No IO, clock or logs.

`parser_for` makes the parser for one generation: ids in, events out. A format is one declaration (`formats/`), from
which both the incremental parser and the GBNF are derived. `parser.py` reads with the nodes of a format;
`stream.watcher` is independent of them: it finds regions between two ids and decodes nothing.
"""
