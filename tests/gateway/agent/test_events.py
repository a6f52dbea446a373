"""Events say nothing that their makers did not say, and texts are decoded where somebody reads them."""

from gateway.agent.events import Finished, GenerationFinished, ToolFinished


def test_what_is_not_said_of_a_call_did_not_happen() -> None:
    told = ToolFinished("call_1", "say", "{}", "text", "shim", 0, 1, False, 0.5)

    assert (told.found, told.kept, told.saved, told.text) == ((), None, 0, "text")


def test_text_of_a_call_is_made_when_it_is_read() -> None:
    made: list[str] = []

    def read() -> str:
        made.append("text")
        return "text"

    told = ToolFinished("call_1", "say", "{}", read, "shim", 0, 1, False, 0.5)

    assert made == []
    assert told.text == "text"


def test_what_is_not_said_of_a_generation_or_an_answer_is_nothing() -> None:
    told = GenerationFinished(10, 1, 0, 0, 0, held=0, timings=None, ttft=0.5, guessed=False)
    finished = Finished("stop", 10, 0, 1)

    assert (told.reasoning, told.prefilled, told.prefilled_seconds, told.moved) == (0, 0, 0.0, 0)
    assert (finished.reasoning_ids, finished.stop) == (0, None)
