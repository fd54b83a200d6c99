# Debian's Prometheus, run as the image `prom/prometheus` is: same user, folders and flags.
ARG BASE
FROM ${BASE}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus wget \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 65534 -g 65534 /prometheus
USER 65534:65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
