# Two stages, so that the image holds no build tools; one user without rights; one process that stops on SIGTERM.
# Any image with Python 3.11 or newer, its venv module and pip will do.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv --without-pip /opt/forkwatch
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY proxy proxy
# EXTRAS=demo adds the SDK, for the demo's server.
ARG EXTRAS=
RUN python3 -m pip --python /opt/forkwatch/bin/python install --no-cache-dir --disable-pip-version-check \
    -c constraints.txt ".${EXTRAS:+[$EXTRAS]}"

FROM ${PYTHON_IMAGE}
# The user is a number, so that Kubernetes can see that it is not root. The admin socket is in the one folder it owns.
RUN groupadd --gid 10001 forkwatch \
    && useradd --no-log-init --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin forkwatch \
    && install --directory --owner=10001 --group=10001 --mode=0700 /run/forkwatch
COPY --from=build /opt/forkwatch /opt/forkwatch
COPY config/forkwatch.yaml /etc/forkwatch/forkwatch.yaml
# Inside a container loopback is nobody's address: publish the ports you want to be reached. Both win over a file.
ENV PATH=/opt/forkwatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RUNTIME_DIRECTORY=/run/forkwatch \
    FORKWATCH__LISTEN=0.0.0.0:8080 \
    FORKWATCH__STATUS=0.0.0.0:9464
USER 10001:10001
EXPOSE 8080 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["forkwatch", "healthcheck"]
ENTRYPOINT ["forkwatch"]
CMD ["run", "--config", "/etc/forkwatch/forkwatch.yaml"]
