# Two stages, so that the image holds no build tools; one user without rights; one process that stops on SIGTERM.
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/forkwatch
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY proxy proxy
# EXTRAS=demo adds the SDK, for the demo's server.
ARG EXTRAS=
RUN /opt/forkwatch/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home forkwatch
COPY --from=build /opt/forkwatch /opt/forkwatch
COPY config/forkwatch.yaml /etc/forkwatch/forkwatch.yaml
# Inside a container loopback is nobody's address; publish the ports you want to be reached.
ENV PATH=/opt/forkwatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FORKWATCH__LISTEN=0.0.0.0:8080 \
    FORKWATCH__STATUS=0.0.0.0:9464
USER forkwatch
EXPOSE 8080 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=2s --start-period=5s CMD ["forkwatch", "healthcheck"]
ENTRYPOINT ["forkwatch"]
CMD ["run", "--config", "/etc/forkwatch/forkwatch.yaml"]
