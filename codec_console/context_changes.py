"""What was deferred, loaded, cleared and compacted for a request, a line each. Names no tools, shows no text. Pure."""

from gateway.context.memory import ContextChange


def words_of(change: ContextChange) -> str:
    """Return what happened, with its tokens; those of definitions and results are estimated."""
    tokens, count = f"{change.tokens:,} tokens", change.count
    match change.kind:
        case "deferred":
            return f"{_counted(count, 'tool')} deferred: about {tokens} of definitions are not in the prompt"
        case "loaded":
            return f"{_counted(count, 'deferred tool')} loaded: about {tokens} of definitions were added to the prompt"
        case "cleared":
            return f"{_counted(count, 'earlier result')} cleared: about {tokens} saved"
        case "summed_up":
            return f"summary written: it replaces the {tokens} of this prompt"
        case "compacted":
            return f"compacted: a summary of {count:,} tokens replaced {tokens}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
