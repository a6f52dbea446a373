"""How engines are spoken to: which adapter fits, llama.cpp and vLLM, and what both share over HTTP."""
