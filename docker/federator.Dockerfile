# The federator: base install, federator and postgres extras. Build from the repository's root:
#   docker build -f docker/federator.Dockerfile -t foltr-federator .
FROM python:3.11-slim AS build
WORKDIR /src
COPY docker/build.txt ./docker/
RUN pip install --no-cache-dir --require-hashes -r docker/build.txt
COPY . .
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.11-slim
COPY docker/federator.txt /tmp/pins.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/pins.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl && useradd --create-home --uid 10001 foltr \
    && install --directory --owner foltr --mode 700 /data
USER foltr
WORKDIR /home/foltr
# Broker and database as the federator itself sees them; it says what is wrong in `docker inspect`.
HEALTHCHECK --interval=30s --timeout=25s --start-period=20s CMD ["foltr", "doctor"]
# The tables first, then a federator that is process 1 and gets SIGTERM: the open round is resumed later.
COPY docker/federator-entrypoint.sh /usr/local/bin/
ENTRYPOINT ["/bin/sh", "/usr/local/bin/federator-entrypoint.sh"]
