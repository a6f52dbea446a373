"""40 tools, one a language: each gives the language's greeting."""

from transport import answer, serve

LANGUAGES = (
    *("albanian", "arabic", "basque", "bulgarian", "catalan", "croatian", "czech", "danish", "dutch", "english"),
    *("estonian", "finnish", "french", "galician", "georgian", "german", "greek", "hebrew", "hindi", "hungarian"),
    *("icelandic", "irish", "italian", "japanese", "korean", "latvian", "lithuanian", "maltese", "norwegian", "polish"),
    *("portuguese", "romanian", "russian", "serbian", "slovak", "spanish", "swedish", "turkish", "ukrainian", "welsh"),
)
TOOLS = [
    {
        "name": f"greet_in_{language}",
        "description": f"Gives a greeting in {language.title()}.",
        "inputSchema": {
            "type": "object",
            "properties": {"polite": {"type": "boolean", "description": "Whether one does not know each other"}},
            "required": ["polite"],
        },
        "annotations": {"readOnlyHint": True},
    }
    for language in LANGUAGES
]

serve(
    lambda request: answer(request, {"content": [{"type": "text", "text": f"{request['params']['name']}: ok"}]}), TOOLS
)
