"""Any unmodified llama.cpp server, over HTTP: generations, and the other questions that it is asked.

`llama_cpp_json.py` reads its streams and answers.

Server reference: llama.cpp, tools/server/README.md (`/tokenize`, `/apply-template`, `/props`, `/slots`).

"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from gateway.engine.interface import (
    Activity,
    EngineFacts,
    Filled,
    GenerateRequest,
    Message,
    Moved,
    Options,
    SlotKeeper,
    Timings,
)
from gateway.engine.wire.connections import SWAPPED
from gateway.engine.wire.engine_answers import (
    IDS,
    Ask,
    JsonQuestions,
    bounded,
    count_of,
    error_of_answer,
    expecting,
    seconds_of,
    table_of,
)
from gateway.engine.wire.engine_client import EngineClient, Sent
from gateway.engine.wire.llama_cpp_json import (
    KIND,
    CompletionStream,
    activity_of,
    completion_body,
    read_facts,
    start_marker_of,
)
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap

# Questions, regardless of the connection.

_BETWEEN: Final = -1
"""What stands between two texts in a list of them: no token has this id."""
_FILE: Final = 2**50
"""Most bytes of a slot file: a larger number is not believed."""


class LlamaCppQuestions(JsonQuestions):
    """Questions to one llama.cpp server."""

    def __init__(self, url: str, ask: Ask, *, served: str | None = None, keep_reasoning: bool = False) -> None:
        """Ask nothing yet.

        Args:
            url: the server's.
            ask: sends one question.
            served: the model to name in every question, to a server in router mode, which has several; None: to one
                that has a single model.
            keep_reasoning: whether templates are asked to show the model's reasoning of earlier turns.
        """
        super().__init__(url, KIND, ask)
        self._served = served
        self._keep_reasoning = keep_reasoning

    async def facts(self) -> EngineFacts:
        """`GET /props`, `GET /v1/models`, and `POST /tokenize` for what the engine puts before an empty prompt."""
        # A router loads the model now, if it has not.
        props = await self._get("/props")
        models = await self._get("/v1/models")
        bos = await self._post("/tokenize", {"content": "", "add_special": True})
        with expecting(self._url, KIND):
            return read_facts(props, models, bos, self._served)

    async def start_marker(self) -> str | None:
        """`GET /props`: see `Provable.start_marker`."""
        return start_marker_of(await self._get("/props"))

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """`POST /tokenize`, without BOS."""
        return await self._tokens(text, specials=specials)

    async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
        """`POST /tokenize` of a list: the server tokenizes each text on its own, and passes numbers through.

        So a number that is no id tells the texts apart. A server that does not pass it through is asked text by text.
        """
        parts: list[list[int]] = [[]]
        for token in await self._tokens([each for text in texts for each in (text, _BETWEEN)], specials=specials):
            if token == _BETWEEN:
                parts.append([])
            else:
                parts[-1].append(token)
        if len(parts) == len(texts) + 1 and not parts[-1]:
            return parts[:-1]
        return [await self.tokenize(text, specials=specials) for text in texts]

    async def _tokens(self, content: str | list[str | int], *, specials: bool) -> list[int]:
        answer = await self._post("/tokenize", {"content": content, "add_special": False, "parse_special": specials})
        with expecting(self._url, KIND):
            return [count_of(token, _BETWEEN, IDS - 1) for token in answer["tokens"]]

    async def apply_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Options | None = None,
    ) -> str:
        """`POST /apply-template`: the engine's own code renders the template, so the result can't differ from it.

        With `tool_choice` "none" it renders the same text, but builds no grammar from the tools' schemas: it can't for
        many schemas that are in use (a dangling `$ref`, a property that is `true`), and would refuse the request.
        """
        body: dict[str, Any] = {"messages": list(messages)}
        if tools:
            body |= {"tools": list(tools), "tool_choice": "none"}
        # The server turns `preserve_reasoning` into the template's own switch, if it has one (llama.cpp,
        # common/chat.cpp).
        told = {**({"preserve_reasoning": True} if self._keep_reasoning else {}), **(options or {})}
        if told:
            body["chat_template_kwargs"] = told
        answer = await self._post("/apply-template", body)
        with expecting(self._url, KIND):
            return str(answer["prompt"])

    async def shows_slots(self) -> bool:
        """Whether the engine shows what its slots are doing: a server with `--no-slots` does not."""
        try:
            await self._slots()
        except EngineRefused:
            return False
        return True

    async def work(self) -> Activity | None:
        """`GET /slots`: what its slots have done. One that hangs in a step does not answer, or the same again."""
        slots = await self._slots()
        with expecting(self._url, KIND):
            return activity_of(slots)

    async def is_at_rest(self, slot: int) -> bool:
        """`GET /slots`: whether a slot is at rest."""
        slots = await self._slots()
        with expecting(self._url, KIND):
            return any(each["id"] == slot and not each["is_processing"] for each in slots)

    async def save_slot(self, slot: int, name: str) -> Moved:
        """`POST /slots/{id}?action=save`: write what a slot at rest holds to a file in the server's directory."""
        answer = await self._post(f"/slots/{slot}?action=save", {"filename": name})
        with expecting(self._url, KIND):
            return _moved(answer["n_saved"], answer["n_written"], answer["timings"]["save_ms"])

    async def restore_slot(self, slot: int, name: str) -> Moved:
        """`POST /slots/{id}?action=restore`. The server checks nothing; if it refuses a file, the slot is empty."""
        answer = await self._post(f"/slots/{slot}?action=restore", {"filename": name})
        with expecting(self._url, KIND):
            return _moved(answer["n_restored"], answer["n_read"], answer["timings"]["restore_ms"])

    async def erase_slot(self, slot: int) -> None:
        """`POST /slots/{id}?action=erase`: forget what a slot at rest holds."""
        await self._post(f"/slots/{slot}?action=erase", {})

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        """Make a slot at rest hold exactly these ids. The id that the server samples after them is not kept.

        Returns how many of them had to be processed, and the time.
        """
        body = {"prompt": list(ids), "id_slot": slot, "n_predict": 0, "cache_prompt": True}
        told = table_of((await self._post("/completion", body)).get("timings"))
        return Filled(bounded(told.get("prompt_n"), len(ids)), seconds_of(told.get("prompt_ms")))

    async def _get(self, path: str) -> dict[str, Any]:
        return await super()._get(self._routed(path))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await super()._post(path, body if self._served is None else {**body, "model": self._served})

    def _routed(self, path: str) -> str:
        """The path of a GET: a router reads the model's name from the query there, and from the body of a POST."""
        return path if self._served is None else f"{path}?model={quote(self._served, safe='')}"

    async def _slots(self) -> list[dict[str, Any]]:
        status, body = await self._ask("GET", self._routed("/slots"), b"")
        if status != 200:
            raise error_of_answer(status, body)
        with expecting(self._url, KIND):
            return cast("list[dict[str, Any]]", json.loads(body))


def _moved(ids: object, size: object, milliseconds: object) -> Moved:
    return Moved(count_of(ids, 0, IDS), count_of(size, 0, _FILE), seconds_of(milliseconds))


# Turns `GenerateRequest` into `POST /completion`, with ids in and ids out (`return_tokens`). It does not know who
# started the server, nor what the ids mean.


class LlamaCpp(LlamaCppQuestions, EngineClient):
    """Client of one llama.cpp server. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        idle_timeout: float = 60.0,
        token_map: TokenMap | None = None,
        served: str | None = None,
        keep_reasoning: bool = False,
        on_loss: Callable[[], None] = lambda: None,
        on_end: Callable[[Timings], None] = lambda timings: None,
    ) -> None:
        """Ask nothing yet.

        Args:
            url, api_key, idle_timeout, on_loss, on_end: see `EngineClient`.
            token_map: the map whose ids are accepted and by which lost ones are recovered, until `prove` finds one;
                without a map they are only counted.
            served, keep_reasoning: see `LlamaCppQuestions`.
        """
        EngineClient.__init__(
            *(self, url),
            api_key=api_key,
            idle_timeout=idle_timeout,
            token_map=token_map,
            on_loss=on_loss,
            on_end=on_end,
            single_use=served is not None or SWAPPED in url,
        )
        LlamaCppQuestions.__init__(self, self.url, self._ask_anywhere, served=served, keep_reasoning=keep_reasoning)

    @property
    def keeper(self) -> SlotKeeper | None:
        """This client, whose slots can be addressed: they are those of one process, so not behind a router."""
        return None if self._single_use else self

    def _questions(self, ask: Ask) -> LlamaCppQuestions:
        return LlamaCppQuestions(self.url, ask, served=self._served, keep_reasoning=self._keep_reasoning)

    def _sent(self, request: GenerateRequest) -> Sent:
        stream = CompletionStream(self.url, self._token_map, request, self._facts and self._facts.vocabulary)
        body = completion_body(request)
        if self._served is not None:
            body["model"] = self._served
        return Sent("/completion", json.dumps(body).encode(), stream)
