# One image for all services: docker build -t vgpuscope:0.1.0 .
# docs/image.md explains how to pin both base images by digest, and what the arguments are for.
ARG NODE_IMAGE=node:22.21.1-bookworm-slim
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

# ── the web console ──
FROM ${NODE_IMAGE} AS console
WORKDIR /src/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY web ./
# types are checked by `make lint`
RUN npx --no-install vite build

# ── an environment with the locked requirements and our wheel; pip stays behind ──
FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/build.txt requirements/run.txt requirements/
RUN pip install --require-hashes --no-deps -r requirements/build.txt \
 && python -m venv --without-pip /opt/vgpuscope \
 && pip --python /opt/vgpuscope/bin/python install --require-hashes --no-deps -r requirements/run.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
COPY --from=console /src/src/vgpuscope/http/assets/console src/vgpuscope/http/assets/console
ARG REVISION=unknown
ARG BUILD_DATE=unknown
# the time of every file in the wheel: the same sources give the same bytes
ARG SOURCE_DATE_EPOCH=1767225600
RUN sed -i "s/^REVISION = .*/REVISION = \"${REVISION}\"/; s/^BUILD_DATE = .*/BUILD_DATE = \"${BUILD_DATE}\"/" src/vgpuscope/version.py \
 && SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH}" pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH}" pip --python /opt/vgpuscope/bin/python install --no-deps --no-index /wheels/*.whl

# ── what is shipped ──
FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG BUILD_DATE=unknown
LABEL org.opencontainers.image.title="vgpuscope" \
      org.opencontainers.image.description="Observability and utilisation analysis for GPUs that are shared in Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${BUILD_DATE}"
COPY --from=build /opt/vgpuscope /opt/vgpuscope
# for health checks that call `wget -qO- http://localhost:…` in the container, as the HAMi handbook does
COPY deploy/image/wget /opt/vgpuscope/bin/wget
ENV PATH=/opt/vgpuscope/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
# the analyzer's history; mount a volume here to keep it
ENV VGPUSCOPE_ANALYZER_HISTORY=/var/lib/vgpuscope/history.db
RUN install -d -m 0755 -o 65532 -g 65532 /app /var/lib/vgpuscope
VOLUME /var/lib/vgpuscope
# config.yaml is read from here
WORKDIR /app
# the chart gives the agent root on its node; nothing else needs it
USER 65532:65532
EXPOSE 8080 9394 9396 31993
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 CMD ["vgpuscope", "alive"]
ENTRYPOINT ["vgpuscope"]
CMD ["analyzer"]
