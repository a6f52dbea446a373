"""From a request for frames to the response that sends them.

Combines the request's fields (format, flush, watcher), its headers (coding, version) and what the gateway offers into a
`FramedAnswer`. It does not know which endpoint it serves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.observe.wire_metrics import WireMetrics
from gateway.serve.codec.negotiation import VARY, Visible, WireOffer, read_version
from gateway.serve.codec.reply import FrameReply
from gateway.serve.codec.stream import FramedAnswer
from gateway.serve.generation.answers import Answering
from gateway.serve.generation.fields import GenerationFields
from gateway.serve.generation.watch import Regions, resolve
from leaf_sdk.vocab import TokenMap

VERSION_HEADER = "codec-client-version"


@dataclass(frozen=True, slots=True)
class FrameResponder:
    """Makes responses that consist of frames."""

    offer: WireOffer
    metrics: WireMetrics
    minimum_version: str | None = None
    """Clients of an older Codec version are refused; None: none are."""

    def respond(
        self,
        request: Request,
        fields: GenerationFields,
        answering: Answering,
        token_map: TokenMap,
        prompt_ids: Sequence[int],
        *,
        expected_ids: int | None = None,
        name_calls: bool,
        json_event: int,
    ) -> Response:
        """Answer with frames.

        Args:
            request: its headers decide on the coding and on the response's headers.
            fields: its body, which asked for frames.
            answering: makes the answer.
            token_map: the engine's.
            prompt_ids: sent in the first frame if the client asked for token ids.
            expected_ids: the most ids that the stream may have; None if unknown.
            name_calls: whether the calls are found here, by their markers; False: another parser finds them.
            json_event: bytes of the JSON event that a frame replaces, without its text (`event_bytes`).

        Raises:
            ValueError: `fields` asks for JSON.
        """
        if fields.stream_format == "json":
            raise ValueError("the request asks for JSON")
        version = read_version(request.headers.get(VERSION_HEADER))
        if self.minimum_version is not None and version < read_version(self.minimum_version):
            return too_old(version, self.minimum_version)
        wire = self.offer.wire(
            fields.stream_format,
            fields.stream_flush,
            token_map.map_id,
            accept_encoding=request.headers.get("accept-encoding"),
            expected_ids=expected_ids,
        )
        markers = resolve(fields.watched, token_map)
        reply = FrameReply(
            prompt_ids=prompt_ids if fields.return_token_ids else (),
            regions=None if markers is None else Regions(markers, token_map, name_calls=name_calls),
        )
        return FramedAnswer(answering, reply, wire, Visible(version), self.metrics, json_event=json_event)


def too_old(version: tuple[int, int], minimum: str) -> Response:
    """The answer that tells a client which version is required, in the form that Codec defines (codec.md A.5)."""
    said = f"{version[0]}.{version[1]}"
    body: dict[str, object] = {
        "error": "codec_version_required",
        "minimum_version": minimum,
        "required_features": [],
        "client_version": said,
    }
    return JSONResponse(body, 426, {"codec-min-version": minimum, "upgrade": f"codec/{minimum}", "vary": VARY})
