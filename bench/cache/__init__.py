"""Conversations that outnumber the slots: the gateway's own paging beside a stock llama.cpp server."""
