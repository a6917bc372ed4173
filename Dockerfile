# syntax=docker/dockerfile:1
# Two stages: the first builds a virtual environment, the second holds nothing else but it and our code.
FROM python:3.13-slim AS build
WORKDIR /srv/statehold
RUN python -m venv /srv/venv
COPY requirements.lock ./
RUN /srv/venv/bin/pip install --no-cache-dir --disable-pip-version-check -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY app ./app
COPY storage ./storage
COPY migrations ./migrations
RUN /srv/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin statehold \
    && install -d -o statehold -g statehold -m 0700 /data
COPY --from=build /srv/venv /srv/venv
USER statehold
ENV STATEHOLD_DATA_DIR=/data \
    STATEHOLD_HOST=0.0.0.0 \
    PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["/srv/venv/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["/srv/venv/bin/statehold"]
CMD ["serve"]
