"""The real vLLM on a CPU: installed apart, started, and held to what the agent's path promises (`make vllm-check`)."""
