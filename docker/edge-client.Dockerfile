# A device: the base install alone, without SQLAlchemy, numba or SciPy. Build from the repository's root:
#   docker build -f docker/edge-client.Dockerfile -t foltr-edge-client .
# LETOR files as data need scikit-learn: --build-arg PINS=edge-client-simulation.txt
FROM python:3.11-slim AS build
WORKDIR /src
COPY docker/build.txt ./docker/
RUN pip install --no-cache-dir --require-hashes -r docker/build.txt
COPY . .
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.11-slim
ARG PINS=edge-client.txt
COPY docker/${PINS} /tmp/pins.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/pins.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl \
    && useradd --create-home --uid 10001 foltr \
    && mkdir /data && chown foltr /data
USER foltr
# The device's store. Mount a volume here to keep it longer than the container.
WORKDIR /data
ENTRYPOINT ["foltr", "client", "run"]
