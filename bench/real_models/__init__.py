"""Tasks for models that people run, through the gateway and with a stock llama-server of the same build."""
