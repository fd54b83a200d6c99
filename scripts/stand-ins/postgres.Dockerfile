# Debian's PostgreSQL, run as the image `postgres` is: same user, folders, variables and stop signal.
ARG BASE
FROM ${BASE}
RUN groupadd --system --gid 999 postgres \
    && useradd --system --uid 999 --gid 999 --home-dir /var/lib/postgresql postgres \
    && mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf \
    && apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/postgresql/*/bin/postgres /usr/lib/postgresql/*/bin/initdb /usr/lib/postgresql/*/bin/pg_ctl \
        /usr/local/bin/ \
    && install -d -o 999 -g 999 -m 0700 /var/lib/postgresql/data && install -d -o 999 -g 999 /var/run/postgresql
COPY postgres-entrypoint /usr/local/bin/docker-entrypoint.sh
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
