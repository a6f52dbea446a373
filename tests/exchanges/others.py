"""The scripts for the npm servers `filesystem`, `memory` and `sequential-thinking`. Data only.

`<folder>` stands for the folder that a server may use: its real path is put in where a server runs.
"""

from typing import Any

from tests.exchanges.steps import Step, call

FOLDER = "<folder>"
_NOTE = f"{FOLDER}/note.txt"
_EDIT = [{"oldText": "second line", "newText": "2nd line"}]

FILESYSTEM = (
    Step("list the tools", "tools/list"),
    call("allowed folders", "list_allowed_directories", {}),
    call("write", "write_file", {"path": _NOTE, "content": "first line\nsecond line\nthird line 漢字\n"}),
    call("read", "read_text_file", {"path": _NOTE}),
    call("read the head", "read_text_file", {"path": _NOTE, "head": 1}),
    call("read the tail", "read_text_file", {"path": _NOTE, "tail": 1}),
    call("read head and tail", "read_text_file", {"path": _NOTE, "head": 1, "tail": 1}),
    call("read as once", "read_file", {"path": _NOTE}),
    call("edit, tried", "edit_file", {"path": _NOTE, "edits": _EDIT, "dryRun": True}),
    call("edit", "edit_file", {"path": _NOTE, "edits": _EDIT}),
    call("edit of what is not there", "edit_file", {"path": _NOTE, "edits": [{"oldText": "4th", "newText": "x"}]}),
    call("make a folder", "create_directory", {"path": f"{FOLDER}/sub/deep"}),
    call("move", "move_file", {"source": _NOTE, "destination": f"{FOLDER}/sub/moved.txt"}),
    call("list", "list_directory", {"path": FOLDER}),
    call("list with sizes", "list_directory_with_sizes", {"path": FOLDER, "sortBy": "size"}),
    call("tree", "directory_tree", {"path": FOLDER}),
    call("search", "search_files", {"path": FOLDER, "pattern": "**/*.txt"}),
    call("search in vain", "search_files", {"path": FOLDER, "pattern": "**/*.none"}),
    call("file's particulars", "get_file_info", {"path": f"{FOLDER}/sub/moved.txt"}),
    call("image", "read_media_file", {"path": f"{FOLDER}/dot.png"}),
    call("several", "read_multiple_files", {"paths": [f"{FOLDER}/sub/moved.txt", f"{FOLDER}/missing.txt"]}),
    call("missing file", "read_text_file", {"path": f"{FOLDER}/missing.txt"}),
    call("outside of the folder", "read_text_file", {"path": "/etc/hostname"}),
    call("no path", "read_text_file", {}),
)

_PEOPLE = [
    {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]},
    {"name": "Engine", "entityType": "machine", "observations": []},
]
_LINK = {"from": "Ada", "to": "Engine", "relationType": "describes"}
_MORE: dict[str, Any] = {"observations": [{"entityName": "Ada", "contents": ["likes numbers", "wrote notes"]}]}
_FEWER: dict[str, Any] = {"deletions": [{"entityName": "Ada", "observations": ["wrote notes"]}]}

MEMORY = (
    Step("list the tools", "tools/list"),
    call("graph of nothing", "read_graph", {}),
    call("create entities", "create_entities", {"entities": _PEOPLE}),
    call("create them again", "create_entities", {"entities": _PEOPLE}),
    call("create relations", "create_relations", {"relations": [_LINK]}),
    call("add observations", "add_observations", _MORE),
    call("add to nobody", "add_observations", {"observations": [{"entityName": "Eve", "contents": ["x"]}]}),
    call("search", "search_nodes", {"query": "numbers"}),
    call("search in vain", "search_nodes", {"query": "zebra"}),
    call("open", "open_nodes", {"names": ["Ada", "Engine"]}),
    call("graph", "read_graph", {}),
    Step("list the resources", "resources/list"),
    call("delete an observation", "delete_observations", _FEWER),
    call("delete a relation", "delete_relations", {"relations": [_LINK]}),
    call("delete an entity", "delete_entities", {"entityNames": ["Engine"]}),
    call("graph at the end", "read_graph", {}),
    call("entities of the wrong shape", "create_entities", {"entities": [{"name": 1}]}),
)


def _think(step: str, **more: Any) -> Step:
    first = {"thought": "Count the owls.", "thoughtNumber": 1, "totalThoughts": 3, "nextThoughtNeeded": True}
    return call(step, "sequentialthinking", {**first, **more})


THINKING = (
    Step("list the tools", "tools/list"),
    _think("think"),
    _think("think on", thought="There are three.", thoughtNumber=2),
    _think("think again", thought="No, four.", thoughtNumber=3, isRevision=True, revisesThought=2),
    _think("think aside", thought="Or bats?", thoughtNumber=4, branchFromThought=2, branchId="bats"),
    _think("think to the end", thought="Four.", thoughtNumber=5, nextThoughtNeeded=False),
    _think("think wrongly", thoughtNumber="first"),
    call("think nothing", "sequentialthinking", {}),
)
