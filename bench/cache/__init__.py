"""Conversations that outnumber the slots: the gateway's own paging compared with a stock llama.cpp server."""
