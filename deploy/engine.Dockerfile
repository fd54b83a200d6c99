# The `kubebid` command, built from source. Closed networks name their own base images.
ARG BUILDER=rust:1.95-bookworm
ARG BASE=debian:bookworm-slim

FROM ${BUILDER} AS builder
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p kubebid && strip target/release/kubebid

FROM ${BASE}
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/kubebid kubebid
COPY --from=builder /source/target/release/kubebid /usr/local/bin/kubebid
USER kubebid
WORKDIR /var/lib/kubebid
VOLUME /var/lib/kubebid
EXPOSE 7440 7441
ENTRYPOINT ["kubebid"]
CMD ["serve"]
