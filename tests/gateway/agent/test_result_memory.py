"""A client that sends its history back finds the gateway's own calls answered in it."""

from gateway.agent.result_memory import ResultMemory

OURS, THEIRS = f"call_{1:024x}", f"call_{2:024x}"


def asks(*ids: str, content: str = "") -> dict:
    calls = [{"id": i, "type": "function", "function": {"name": "up__say", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(call_id: str, content: str) -> dict:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def remembering(**texts: str) -> ResultMemory:
    memory = ResultMemory()
    for call_id, text in texts.items():
        memory.keep(call_id, text)
    return memory


def test_whole_answer_of_a_gateway_becomes_calls_results_and_words():
    memory = remembering(**{OURS: "It is 42."})
    filled = memory.filled([asks(OURS, content="The answer is 42."), {"role": "user", "content": "Sure?"}])

    assert [m["role"] for m in filled] == ["assistant", "tool", "assistant", "user"]
    assert filled[0]["content"] == ""
    assert filled[1]["content"] == "It is 42."
    assert filled[1]["tool_call_id"] == OURS
    assert filled[2] == {"role": "assistant", "content": "The answer is 42."}


def test_turn_that_called_both_kinds_gets_the_result_that_the_client_does_not_have():
    filled = remembering(**{OURS: "ours"}).filled([asks(THEIRS, OURS), result(THEIRS, "theirs")])

    assert [(m["role"], m["content"]) for m in filled] == [("assistant", ""), ("tool", "ours"), ("tool", "theirs")]


def test_what_the_client_answers_itself_is_left_to_it():
    history = [asks(OURS), result(OURS, "mine")]

    assert remembering(**{OURS: "kept"}).filled(history) == history


def test_unknown_call_stays_as_it_came():
    history = [asks(OURS), {"role": "user", "content": "and?"}]

    assert ResultMemory().filled(history) == history


def test_id_that_a_model_chose_is_not_remembered_for_others():
    history = [asks("functions.say:0")]

    assert remembering(**{"functions.say:0": "somebody else's"}).filled(history) == history


def test_oldest_result_is_forgotten_first():
    memory = ResultMemory()
    for n in range(1025):
        memory.keep(f"call_{n:024x}", str(n))

    assert len(memory.filled([asks(f"call_{0:024x}")])) == 1
    assert len(memory.filled([asks(f"call_{1:024x}")])) == 2


def test_result_that_came_as_ids_is_read_when_the_conversation_comes_back_and_not_before():
    reads: list[str] = []

    def read() -> str:
        reads.append("read")
        return "x" * 20_000

    memory = ResultMemory()
    memory.keep(OURS, read)
    assert reads == []
    assert memory.filled([asks(OURS)])[1]["content"] == "x" * 16_000
    assert reads == ["read"]
