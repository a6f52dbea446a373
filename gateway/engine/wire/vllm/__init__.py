"""A vLLM server: ids in and ids out, its tokenizer and template by ids, its grammars and salts."""
