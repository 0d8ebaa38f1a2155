# One image, all processes: docker build -t vgpuscope:0.1.0 .
FROM node:22-slim AS console
WORKDIR /src/web
COPY web ./
RUN npm ci && npm run build

FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements/run.txt requirements/run.txt
RUN python -m venv /opt/vgpuscope && /opt/vgpuscope/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
COPY --from=console /src/src/vgpuscope/http/assets/console src/vgpuscope/http/assets/console
ARG REVISION=unknown BUILD_DATE=unknown
RUN sed -i "s/^REVISION = .*/REVISION = \"${REVISION}\"/; s/^BUILD_DATE = .*/BUILD_DATE = \"${BUILD_DATE}\"/" src/vgpuscope/version.py \
 && /opt/vgpuscope/bin/pip install --no-cache-dir --no-deps .

FROM python:3.12-slim
COPY --from=build /opt/vgpuscope /opt/vgpuscope
ENV PATH=/opt/vgpuscope/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
# the analyzer's history; mount a volume here to keep it
ENV VGPUSCOPE_ANALYZER_HISTORY=/var/lib/vgpuscope/results.sqlite
RUN mkdir -p /var/lib/vgpuscope
VOLUME /var/lib/vgpuscope
ENTRYPOINT ["vgpuscope"]
CMD ["--help"]
