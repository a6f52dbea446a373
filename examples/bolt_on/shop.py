"""A bolt-on: a tool that is called with the model's ids, and answers with ids that were mostly made beforehand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leaf_sdk import Filled, ToolRefusal, ToolSource, fill

STOCK = {"lamp": 12, "chair": 0}


def stock(arguments: Mapping[str, Any]) -> Filled:
    """Choose a text by its name, and give each of its slots a value."""
    article: object = arguments.get("article")
    if not isinstance(article, str):
        raise ToolRefusal(f"argument 'article' is {article!r:.60}, expected a string")
    left = STOCK.get(article.lower())
    if left is None:
        return fill("unknown", article=article)
    return fill("left", article=article, count=str(left)) if left else fill("sold_out", article=article)


TOOLS = [
    ToolSource(
        name="stock",
        version="1.0.0",
        description="Tell how many of an article are in stock",
        arguments_schema={
            "type": "object",
            "properties": {"article": {"type": "string", "enum": ["lamp", "chair"]}},
            "required": ["article"],
        },
        texts={
            "left": "There are {count} of the article {article} in stock, ready to be sent today.",
            "sold_out": "The article {article} is sold out. More are expected next week.",
            "unknown": "There is no article {article} in the catalogue.",
        },
        function=stock,
        folder=Path(__file__).parent / "stock",
    )
]
