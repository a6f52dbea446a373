# The gateway: a virtual environment of locked wheels on a Python base, and nothing else.
#
#   docker build -f deploy/docker/gateway.Dockerfile -t codec-gateway .
#   docker build -f deploy/docker/gateway.Dockerfile --build-arg EXTRAS=console,embedded -t codec-gateway:embedded .
#
# BASE needs Python 3.11 or newer with venv at the same path in both stages; it runs without a shell.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
# "embedded" brings llama.cpp and SmolLM2-135M, "otel" traces, "shared" a shared store; all: "console,embedded,otel,shared".
ARG EXTRAS="console"
# Compiled modules count without a look at their sources' times, which a layer rounds: half of them would be stale.
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_NO_CACHE=1 UV_SYSTEM_CERTS=1 PIP_NO_CACHE_DIR=1 \
    UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH
WORKDIR /src
COPY requirements.lock deploy/docker/install.py ./
RUN ["python3", "install.py", "uv", "requirements.lock", "/opt/uv"]
COPY pyproject.toml README.md CHANGELOG.md LICENSE SECURITY.md ./
COPY docs ./docs
COPY examples ./examples
COPY gateway ./gateway
COPY codec_console ./codec_console
COPY leaf_sdk ./leaf_sdk
COPY tools ./tools
RUN ["python3", "install.py", "packages", "requirements.lock", "/opt/uv", "/app", "codec-gateway", "codec-console", "codec-leaf"]

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="codec-gateway" \
      org.opencontainers.image.description="Codec-aware MCP gateway: token ids from the tool to the model's KV cache" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ARG EXTRAS="console"
# llama.cpp needs a library of the system that slim images lack; without "embedded" this does nothing.
RUN --mount=type=bind,from=build,source=/src/install.py,target=/tmp/install.py ["python3", "/tmp/install.py", "system"]
COPY --from=build /app /app
COPY --from=build --chown=65532:0 --chmod=2775 /empty /state
COPY --from=build --chown=65532:0 --chmod=2775 /empty /models
# Nothing here extends pydantic: it need not look through every package for who does. HOME and the state folder are named, since a user that is only a number has none. The state folder holds a generated
# token and pinned tool definitions; without a volume it is as new with every container. Both are there so that a named
# volume takes over who may write.
ENV PATH=/app/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp XDG_STATE_HOME=/state XDG_CACHE_HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYDANTIC_DISABLE_PLUGINS=__all__ \
    CODEC_GATEWAY_SERVE__HOST=0.0.0.0 CODEC_GATEWAY_SERVE__ADMIN_HOST=0.0.0.0
WORKDIR /etc/codec-gateway
USER 65532:0
EXPOSE 8600 8601
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s --retries=3 \
    CMD ["python", "-m", "gateway.cli.probe"]
ENTRYPOINT ["codec-gateway"]
CMD ["serve"]
