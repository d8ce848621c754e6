# The service of the declared connections: the wheel without its own dependencies, and what the service needs.
#   docker build -t connections . && docker run -p 8080:8080 -v "$PWD/connections:/workspace/connections" connections
# Add --build-arg SET=connections-google for a credential store in Google Secret Manager.
FROM python:3.12-slim AS build
ARG SET=connections
WORKDIR /source
COPY . .
RUN python -m venv /service \
    && /service/bin/pip install --no-cache-dir --require-hashes --no-deps -r constraints/${SET}.txt \
    && python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel . \
    && /service/bin/pip install --no-cache-dir --no-deps /wheel/*.whl \
    && /service/bin/python -m compileall -q /service/lib \
    && /service/bin/pip uninstall --yes pip

FROM python:3.12-slim
COPY --from=build /service /service
RUN useradd --system --no-create-home connections
USER connections
WORKDIR /workspace/connections
ENV PORT=8080 PYTHONUNBUFFERED=1
# On Cloud Run its front end identifies callers. Anywhere else set SEGMENTSTREAM_CONNECTIONS_HOST=0.0.0.0 and
# SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256, or the service listens inside the container only.
CMD ["/service/bin/python", "-m", "segmentstream_connections_runtime", "serve"]
