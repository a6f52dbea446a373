# A leaf tool over Streamable HTTP: here time_leaf. `codec-leaf new` makes a Dockerfile of the same kind for yours.
#
#   docker build -f deploy/docker/leaf.Dockerfile -t codec-time-leaf .
#   docker run -p 127.0.0.1:8300:8300 codec-time-leaf
#
# BASE needs Python 3.11 or newer with venv at the same path in both stages; it runs without a shell.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
# Compiled modules count without a look at their sources' times, which a layer rounds: half of them would be stale.
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_NO_CACHE=1 UV_SYSTEM_CERTS=1 PIP_NO_CACHE_DIR=1 \
    UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH
WORKDIR /src
COPY requirements.lock deploy/docker/install.py ./
RUN ["python3", "install.py", "uv", "requirements.lock", "/opt/uv"]
COPY leaf_sdk ./leaf_sdk
COPY tools/time_leaf ./tools/time_leaf
RUN ["python3", "install.py", "packages", "requirements.lock", "/opt/uv", "/app", "codec-time-leaf", "codec-leaf"]

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="codec-time-leaf" \
      org.opencontainers.image.description="A leaf MCP server: the time, as text and as token ids" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /app /app
ENV PATH=/app/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp XDG_CACHE_HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app
USER 65532:0
EXPOSE 8300
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s --retries=3 \
    CMD ["python", "-m", "leaf_sdk.serve.alive", "127.0.0.1:8300"]
ENTRYPOINT ["codec-time-leaf"]
CMD ["--http", "0.0.0.0:8300"]
