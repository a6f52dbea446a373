"""Who owns the tasks of one server: a task's id works only for the principal that made it.

A task outlives its request, and whoever knows or lists its id could read its result, answer its questions or cancel it.
A server does not know our principals, so we must prevent this. An id belongs to the principal that asked for the task,
and nothing that the server says later gives it to another. Covers the tasks of the handshake era (2025-11-25,
`params.task`) and the extension of 2026-07-28 (`resultType: "task"`). It sends nothing.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from gateway.errors import RpcError, rpc_error
from gateway.escape import escape_text
from gateway.protocol.eras import CAPABILITIES_KEY, meta_of
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS
from gateway.proxy.caller import Principal

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
"""Key in `_meta` that says which task a message belongs to."""
TASK_METHODS: Final = "tasks/"
_LIST: Final = "tasks/list"
_ABOUT_TASKS: Final = "notifications/tasks"
_MOST: Final = 10_000
"""Tasks that are remembered; above that, the principal with the most loses its oldest one."""
_LONGEST: Final = 1024
"""Characters of the longest id that is remembered."""
_TAKEN: Final = (
    "the server gave a new task an id that another caller's task already has, so nobody could follow it: the server's "
    "author has to use each id only once"
)


class TaskOwners:
    """The tasks made in one conversation, or with one server if it keeps them across conversations."""

    def __init__(self) -> None:
        self._owner: dict[str, str] = {}
        self._ids: dict[str, dict[str, None]] = {}
        """The tasks of each principal, the oldest first."""

    def owns(self, task_id: object, principal: Principal) -> bool:
        """Whether this principal made the task."""
        return isinstance(task_id, str) and self._owner.get(task_id) == principal.name

    def check(self, method: str, params: Mapping[str, Any], principal: Principal) -> None:
        """Refuse a request about a task that this principal did not make. Raises `RpcError`: the task is not theirs;
        the error is the same as if it did not exist."""
        if not method.startswith(TASK_METHODS) or method == _LIST or self.owns(params.get("taskId"), principal):
            return
        raise unknown_task(params.get("taskId"))

    def note(
        self, method: str, sent: Mapping[str, Any], result: dict[str, Any], principal: Principal
    ) -> dict[str, Any]:
        """Remember a task that this result begins, and remove other principals' tasks from a list. Return the result.

        Args:
            sent: the params as the server got them: a result begins a task only if they asked for one.

        Raises:
            RpcError: the server gave the task an id that belongs to another principal.
        """
        if method == _LIST:
            listed: object = result.get("tasks")
            tasks = cast("list[object]", listed) if isinstance(listed, list) else []
            return {**result, "tasks": [each for each in tasks if self.owns(_id_of(each), principal)]}
        if (task_id := _begun(sent, result)) is not None:
            self._made(task_id, principal)
        return result

    def may_hear(self, method: str, params: Mapping[str, Any], principal: Principal) -> bool:
        """Whether a notification or question may reach this principal: if it is about a task, only the task's owner."""
        if method.startswith(_ABOUT_TASKS):
            return self.owns(params.get("taskId"), principal)
        meta = meta_of(params)
        return RELATED not in meta or self.owns(_id_of(meta[RELATED]), principal)

    def _made(self, task_id: str, principal: Principal) -> None:
        if self._owner.get(task_id, principal.name) != principal.name:
            raise rpc_error(INTERNAL_ERROR, _TAKEN)
        # If a server reuses an id for the same principal, it now means the new task.
        self._forget(task_id)
        self._owner[task_id] = principal.name
        self._ids.setdefault(principal.name, {})[task_id] = None
        if len(self._owner) > _MOST:
            self._forget(next(iter(max(self._ids.values(), key=len))))

    def _forget(self, task_id: str) -> None:
        owner = self._owner.pop(task_id, None)
        if owner is None:
            return
        del self._ids[owner][task_id]
        if not self._ids[owner]:
            del self._ids[owner]


def _begun(sent: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """The id of the task that a result begins, if the request asked for one: by its params in the handshake era, by the
    capabilities in its `_meta` in the modern one."""
    if result.get("resultType") == "task":
        extensions = _fields(_fields(meta_of(sent).get(CAPABILITIES_KEY)).get("extensions"))
        task_id: object = result.get("taskId") if EXTENSION in extensions else None
    else:
        task_id = _id_of(result.get("task")) if "task" in sent else None
    return task_id if isinstance(task_id, str) and len(task_id) <= _LONGEST else None


def unknown_task(task_id: object) -> RpcError:
    """The error for a task that is not the caller's or does not exist."""
    message = "unknown task: params.taskId has to be the id of a task, as a string"
    if isinstance(task_id, str):
        message = f"unknown task {escape_text(task_id, 128)!r}: this caller has created no task with this id"
    return rpc_error(INVALID_PARAMS, message)


def without_extension(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities without the tasks extension, for a side whose era has none."""
    extensions: object = capabilities.get("extensions")
    if not isinstance(extensions, dict) or EXTENSION not in extensions:
        return dict(capabilities)
    kept = {key: value for key, value in cast("dict[str, Any]", extensions).items() if key != EXTENSION}
    rest = {key: value for key, value in capabilities.items() if key != "extensions"}
    return {**rest, "extensions": kept} if kept else rest


def _id_of(task: object) -> object:
    return _fields(task).get("taskId")


def _fields(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
