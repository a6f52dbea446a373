"""From a request that wants frames to the response that sends them.

Joins what the request says (format, flush, watcher), what its headers say (coding, version) and what the gateway offers
into a `FramedAnswer`. It does not know which endpoint asks.
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
    """Makes responses of frames."""

    offer: WireOffer
    metrics: WireMetrics
    minimum_version: str | None = None
    """Clients of an older Codec are turned away."""

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
            request: its headers decide on coding and headers.
            fields: its body, which asked for frames.
            answering: the answer to be made.
            token_map: of the engine.
            prompt_ids: told in the first frame if the client asked for token ids.
            expected_ids: the most ids that the stream may have, where that is known.
            name_calls: whether calls are found by their markers alone.
            json_event: bytes of an event of JSON in a frame's place, without its text (`event_bytes`).
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
    """Tell a client which version is demanded, in Codec's words (codec.md A.5)."""
    said = f"{version[0]}.{version[1]}"
    body: dict[str, object] = {
        "error": "codec_version_required",
        "minimum_version": minimum,
        "required_features": [],
        "client_version": said,
    }
    return JSONResponse(body, 426, {"codec-min-version": minimum, "upgrade": f"codec/{minimum}", "vary": VARY})
