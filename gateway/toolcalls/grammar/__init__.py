"""GBNF, with which the engine holds a model to a call's form: rules for schemas, texts, numbers and patterns."""
