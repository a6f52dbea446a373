"""How an engine gets a larger context: turns a running engine into the advice for a prompt that does not fit."""

from gateway.engine.start.ready_engine import ReadyEngine


def larger_context(ready: ReadyEngine) -> str:
    """What to change so that longer prompts fit."""
    settings = ready.settings
    if settings.kind == "embedded":
        each = settings.context // settings.slots
        if ready.facts.context < each:
            return "the model was not trained on more; shorten it, or use a model with a larger context"
        shared = f", which is shared by engine.slots (now {settings.slots})" if settings.slots > 1 else ""
        return f"shorten it, or raise engine.context (now {settings.context}){shared}"
    return (
        "shorten it, or give the engine a larger context (`llama-server -c`, `vllm serve --max-model-len`, or "
        "engine.context where the gateway runs the engine)"
    )
