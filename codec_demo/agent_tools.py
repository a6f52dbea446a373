"""The tools of the demo's agent: 20 definitions in OpenAI's form, and what the tools answer."""

from typing import Any, Final

_ARGUMENTS: Final[dict[str, Any]] = {
    "number": {"type": "integer", "minimum": 0, "maximum": 9999},
    "text": {"type": "string", "maxLength": 40},
}
_DEFINED: Final = (
    # Name, description, required arguments, optional ones. An argument ending in # is a number.
    ("read_file", "Read a file of the project.", "path", "first_line# last_line#"),
    ("write_file", "Write a file, replacing what it held.", "path text", ""),
    ("edit_file", "Replace one piece of text in a file.", "path old new", ""),
    ("list_files", "List the files of a folder.", "folder", ""),
    ("find_files", "Find files by a pattern of their names.", "pattern", ""),
    ("search_text", "Search the files for a regular expression.", "pattern", "folder"),
    ("run_tests", "Run the tests of a folder.", "folder", ""),
    ("run_command", "Run a command in the project's root.", "command", "seconds#"),
    ("read_log", "Read the last lines of a log.", "log", "lines#"),
    ("git_status", "Show which files have changed.", "", ""),
    ("git_diff", "Show what has changed in a file.", "path", ""),
    ("git_log", "Show the last commits of a file.", "path", "commits#"),
    ("git_commit", "Commit all changes.", "message", ""),
    ("fetch_page", "Fetch a page of the documentation.", "address", ""),
    ("search_docs", "Search the documentation.", "words", ""),
    ("list_issues", "List the open issues with a label.", "label", ""),
    ("read_issue", "Read one issue with its comments.", "number#", ""),
    ("query_database", "Run one read-only SQL query.", "query", ""),
    ("take_note", "Keep a note for later.", "text", ""),
    ("start_agent", "Give a part of the task to a sub-agent and wait for its answer.", "task", ""),
)


def definitions(count: int = len(_DEFINED)) -> list[dict[str, Any]]:
    """Return the first `count` of the 20 definitions."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": {each.rstrip("#"): _schema(each) for each in f"{required} {optional}".split()},
                    "required": [each.rstrip("#") for each in required.split()],
                },
            },
        }
        for name, description, required, optional in _DEFINED[:count]
    ]


def _schema(argument: str) -> dict[str, Any]:
    return _ARGUMENTS["number" if argument.endswith("#") else "text"]


def search_result(lines: int, seed: int) -> str:
    """Return the lines that a search in source files would; about 30 tokens each."""
    return "\n".join(
        f"src/store/part_{(7 * seed + 3 * n) % 23:02}.py:{40 + 11 * n}: value = load_item(key_{(seed + n) % 9}, "
        f"limit={(37 * n + seed) % 500})"
        for n in range(lines)
    )
