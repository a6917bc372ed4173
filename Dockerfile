# syntax=docker/dockerfile:1
# Two stages: the first builds a virtual environment, the second holds nothing else but it. Of what
# builds (pip, hatchling) nothing comes along. How to run it: docs/deployment.md.
FROM python:3.13-slim-trixie AS build
WORKDIR /src
COPY requirements.lock ./
# Ready-made packages only: without a compiler a missing one says so at once.
RUN python -m venv /build \
    && /build/bin/pip install --no-cache-dir --disable-pip-version-check --no-compile \
        --only-binary=:all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY app ./app
COPY storage ./storage
COPY migrations ./migrations
# The lock pins; what the wheel asks for decides what is installed. Bytecode is made here since the
# service may write nowhere but its data: compiling at each start takes longer than the start itself.
RUN /build/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation \
        --wheel-dir /wheels . \
    && python -m venv --without-pip /srv/venv \
    && /build/bin/pip --python /srv/venv/bin/python install --no-cache-dir --disable-pip-version-check \
        --no-compile --only-binary=:all: --constraint requirements.lock /wheels/*.whl \
    && /srv/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /srv/venv/lib

FROM python:3.13-slim-trixie
# The base image has no bytecode of the standard library; a health check would compile its part each time.
RUN groupadd --system --gid 10001 statehold \
    && useradd --system --uid 10001 --gid 10001 --home-dir /data --no-create-home \
        --shell /usr/sbin/nologin statehold \
    && install -d -o statehold -g statehold -m 0700 /data /backups \
    && python -m compileall -q --invalidation-mode unchecked-hash \
        -x 'site-packages|/tests?/|/idlelib/|/tkinter/|/turtledemo/|/ensurepip/' \
        "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /srv/venv /srv/venv
ENV PATH=/srv/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    STATEHOLD_DATA_DIR=/data \
    STATEHOLD_HOST=0.0.0.0
USER 10001:10001
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/srv/venv/bin/statehold", "health"]
# It gets 20 s for requests under way (STATEHOLD_SHUTDOWN_GRACE_S): stop it with a longer time than that.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/srv/venv/bin/statehold"]
CMD ["serve"]
