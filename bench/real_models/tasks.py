"""Forty tasks for a model with tools: what is asked, and what a right answer calls or says.

`judge.py` holds answers against them. Only facts. No history begins as another task does: the gateway would put the
call that its model wrote there in place of the given one, and the servers would not be asked the same.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Check = Callable[[Any], bool]
Wanted = Mapping[str, Check]


@dataclass(frozen=True, slots=True)
class Task:
    """One request, and the calls that are right, or with no `calls` what the answer's words must say."""

    kind: str
    messages: tuple[dict[str, Any], ...]
    calls: tuple[tuple[str, Wanted], ...] = ()
    choice: str = "auto"
    tools: tuple[str, ...] = ()
    """Names of the tools that are offered; empty: all."""
    says: Check | None = None
    """Whether an answer in words says what was asked; None: the task wants calls."""


def _tool(name: str, description: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


TOOLS: Final = {
    tool["function"]["name"]: tool
    for tool in (
        _tool("get_weather", "Current weather of a city.", ("city",), city=_text("Name of the city")),
        _tool("get_time", "Current time in a city.", ("city",), city=_text("Name of the city")),
        _tool("list_notes", "List the names of all notes."),
        _tool("read_file", "Read a text file.", ("path",), path=_text("Path of the file")),
        _tool("write_file", "Write a text file.", ("path", "content"), path=_text("Path"), content=_text("The text")),
        _tool("search_docs", "Search the documentation.", ("query",), query=_text("Words"), limit={"type": "integer"}),
        _tool(
            "set_light",
            "Switch a light.",
            ("room", "on"),
            room={"type": "string", "enum": ["kitchen", "attic", "hall"]},
            on={"type": "boolean"},
        ),
        _tool(
            "add_event",
            "Add an event to the calendar.",
            ("title", "when"),
            title=_text("Title"),
            when={
                "type": "object",
                "properties": {"date": _text("YYYY-MM-DD"), "time": _text("HH:MM")},
                "required": ["date", "time"],
            },
            attendees={"type": "array", "items": {"type": "string"}},
        ),
    )
}


def _says(*words: str) -> Check:
    return lambda value: isinstance(value, str) and all(word.casefold() in value.casefold() for word in words)


def _finds(pattern: str) -> Check:
    return lambda value: isinstance(value, str) and re.search(pattern, value, re.IGNORECASE) is not None


def _is(wanted: Any) -> Check:
    return lambda value: value == wanted and type(value) is type(wanted)


def _anything(_value: Any) -> bool:
    return True


def _when(date: str, time: str) -> Check:
    return _is({"date": date, "time": time})


def _user(text: str) -> tuple[dict[str, Any], ...]:
    return ({"role": "user", "content": text},)


def _after(question: str, name: str, arguments: str, result: str) -> tuple[dict[str, Any], ...]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return (
        *_user(question),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    )


def _city(name: str, *words: str) -> tuple[tuple[str, Wanted], ...]:
    return ((name, {"city": _says(*words)}),)


_EVENT: Final = "Add the event 'Review' on 2027-01-15 at 09:30 to the calendar"
_REVIEW: Final = {"title": _says("review"), "when": _when("2027-01-15", "09:30")}

TASKS: Final = (
    Task("single", _user("What is the weather in Oslo?"), _city("get_weather", "oslo")),
    Task("single", _user("What time is it in Tokyo? Use the tool."), _city("get_time", "tokyo")),
    Task("single", _user("How warm is it in Madrid right now?"), _city("get_weather", "madrid")),
    Task("single", _user("Read the file notes/today.txt."), (("read_file", {"path": _says("notes/today.txt")}),)),
    Task("single", _user("Search the documentation for 'slots'."), (("search_docs", {"query": _says("slots")}),)),
    Task(
        "single", _user("Switch on the light in the attic."), (("set_light", {"room": _is("attic"), "on": _is(True)}),)
    ),
    Task("single", _user("Turn the kitchen light off."), (("set_light", {"room": _is("kitchen"), "on": _is(False)}),)),
    Task(
        "single",
        _user("Write 'hello' into the file hello.txt."),
        (("write_file", {"path": _says("hello.txt"), "content": _says("hello")}),),
    ),
    Task("single", _user("Check the weather in New York for me."), _city("get_weather", "new york")),
    Task(
        "single",
        _user("Find at most 3 pages about caching in the documentation."),
        (("search_docs", {"query": _says("cach"), "limit": _is(3)}),),
    ),
    Task("no arguments", _user("Which notes are there?"), (("list_notes", {}),)),
    Task("no arguments", _user("List my notes, please."), (("list_notes", {}),)),
    Task("no arguments", _user("Show the names of all notes."), (("list_notes", {}),), "required"),
    Task("nested", _user(f"{_EVENT}."), (("add_event", _REVIEW),)),
    Task("nested", _user(f"{_EVENT}, with Ada and Bob."), (("add_event", {**_REVIEW, "attendees": _anything}),)),
    Task("nested", _user(f"{_EVENT}."), (("add_event", _REVIEW),), "required", ("add_event",)),
    Task("nested", _user(f"{_EVENT}."), (("add_event", _REVIEW),), "add_event"),
    Task(
        "code in strings",
        _user('Write a Python program that prints "hi" into hi.py.'),
        (("write_file", {"path": _says("hi.py"), "content": _says("print")}),),
    ),
    Task(
        "code in strings",
        _user("Write a JSON file a.json with the key x and the value 1."),
        (("write_file", {"path": _says("a.json"), "content": _says("x", "1")}),),
    ),
    Task(
        "code in strings",
        _user("Write two lines, 'one' and 'two', into lines.txt."),
        (("write_file", {"path": _says("lines.txt"), "content": _says("one", "two")}),),
        "required",
        ("write_file",),
    ),
    Task(
        "code in strings",
        _user("Write a C function add into add.c."),
        (("write_file", {"path": _says("add.c"), "content": _says("add")}),),
        "write_file",
    ),
    Task("non-ASCII", _user("What is the weather in 東京?"), (("get_weather", {"city": _anything}),)),
    Task("non-ASCII", _user("Wie spät ist es in München? Use the tool."), _city("get_time", "m")),
    Task(
        "non-ASCII",
        _user("Write 'Grüße, 世界' into gruss.txt."),
        (("write_file", {"path": _says("gruss"), "content": _says("gr")}),),
        "required",
        ("write_file",),
    ),
    Task("non-ASCII", _user("Погода в Москве?"), (("get_weather", {"city": _anything}),), "get_weather"),
    Task(
        "parallel",
        _user("What is the weather in Oslo and in Rome?"),
        (*_city("get_weather", "oslo"), *_city("get_weather", "rome")),
    ),
    Task(
        "parallel",
        _user("Get the weather and the time in Paris."),
        (*_city("get_weather", "paris"), *_city("get_time", "paris")),
    ),
    Task(
        "parallel",
        _user("Read a.txt and b.txt."),
        (("read_file", {"path": _says("a.txt")}), ("read_file", {"path": _says("b.txt")})),
    ),
    Task("required", _user("What is the weather in Lima?"), _city("get_weather", "lima"), "required"),
    Task(
        "required",
        _user("Switch off the hall light."),
        (("set_light", {"room": _is("hall"), "on": _is(False)}),),
        "required",
    ),
    Task("named", _user("Lisbon, please."), _city("get_weather", "lisbon"), "get_weather"),
    Task("named", _user("Look up 'metrics'."), (("search_docs", {"query": _says("metrics")}),), "search_docs"),
    Task("none needed", _user("Hello!"), says=_anything),
    Task("none needed", _user("What is 2 + 2? Answer without any tool."), says=_finds(r"\b(4|four)\b")),
    Task("none needed", _user("Say thank you in French."), choice="none", says=_says("merci")),
    Task(
        "after a result",
        _after("What is the weather in Bergen?", "get_weather", '{"city": "Bergen"}', "Rain, 7 degrees."),
        says=_says("rain", "7"),
    ),
    Task(
        "after a result",
        _after("Which notes do I have?", "list_notes", "{}", "shopping, travel"),
        says=_says("shopping", "travel"),
    ),
    Task(
        "after an error",
        _after("Read a.txt.", "read_file", '{"path": "a.txt"}', "Error: there is no file a.txt."),
        says=_finds(r"\b(no|not|cannot|unable|fail\w*|error)\b|n['’]t\b"),
    ),
    Task(
        "sequential",
        _after(
            "Read the file plan.txt, then read the file that it names.", "read_file", '{"path": "plan.txt"}', "next.txt"
        ),
        (("read_file", {"path": _says("next.txt")}),),
    ),
    Task(
        "sequential",
        _after(
            "Find out which city plan.txt names, then get its weather.", "read_file", '{"path": "plan.txt"}', "Oslo"
        ),
        _city("get_weather", "oslo"),
    ),
)


_END: Final = "<|im_end|>"
"""The end of a turn in ChatML, which servers fall back to: for a model without a chat template it is text like any
other, and behind it the model would go on as the user or a tool."""


def body(task: Task, temperature: float, seed: int) -> dict[str, Any]:
    """Return the request."""
    named = task.choice in TOOLS
    tools = [TOOLS[name] for name in (task.tools or TOOLS)]
    return {
        "model": "any",
        "messages": list(task.messages),
        "tools": tools,
        "tool_choice": {"type": "function", "function": {"name": task.choice}} if named else task.choice,
        "temperature": temperature,
        "seed": seed,
        "stop": [_END],
        "max_tokens": 120,
    }
