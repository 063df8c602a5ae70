"""nginx and Caddy with the configurations of the page, on free ports of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2

from tests.environment import run

from .page import NAME, from_page

PATIENCE = 30.0
NGINX_MAIN = """
daemon off;
{user}
pid {folder}/nginx.pid;
worker_processes 1;
events {{}}
http {{
    {temporary}
    access_log {folder}/access.log;
    include {folder}/site.conf;
}}
"""
CADDY_OPTIONS = """
    admin off
    local_certs
    skip_install_trust
    auto_https disable_redirects
    http_port {http}
    https_port {https}
    storage file_system {folder}/storage
"""


@attrs.frozen
class Proxy:
    """A proxy that listens.

    Attributes:
        port: Its port of this machine, for TLS.
        authority: What its certificate is trusted by.
        folder: Where it writes.
    """

    port: int
    authority: Path
    folder: Path

    def client(self, **options: Any) -> httpx2.Client:
        """Open a client that calls it by its public name."""
        trust = ssl.create_default_context(cafile=str(self.authority))
        options = {"verify": trust, "timeout": PATIENCE, "base_url": f"https://{NAME}:{self.port}", **options}
        return httpx2.Client(transport=_Here(httpx2.HTTPTransport(verify=trust)), **options)

    def wire(self) -> ssl.SSLSocket:
        """Open a connection."""
        trust = ssl.create_default_context(cafile=str(self.authority))
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return trust.wrap_socket(plain, server_hostname=NAME)

    def written(self) -> str:
        """Return all that it wrote into logs."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))


@attrs.frozen
class _Here(httpx2.BaseTransport):
    """Sends requests for any name to this machine, and checks the certificate for the name."""

    transport: httpx2.HTTPTransport

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        request.url = request.url.copy_with(host="127.0.0.1")
        return self.transport.handle_request(request)

    def close(self) -> None:
        """Close its connections."""
        self.transport.close()


@contextmanager
def nginx(gateway: str, folder: Path, changes: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """Run nginx in front of a gateway, with further changes of the page's configuration."""
    certificate, key, port = folder / "tito.pem", folder / "tito.key", free_port()
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", f"/CN={NAME}"),
        *("-addext", f"subjectAltName=DNS:{NAME}"),
    )
    site = from_page(
        "server {",
        {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "http://127.0.0.1:8010": gateway,
            "/etc/ssl/tito.pem": str(certificate),
            "/etc/ssl/tito.key": str(key),
            "/var/log/nginx": str(folder),
            **(changes or {}),
        },
    )
    (folder / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n    ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""  # workers of another user do not reach the test's folder
    main = folder / "nginx.conf"
    main.write_text(NGINX_MAIN.format(folder=folder, temporary=temporary, user=user))
    command = [program("nginx"), "-p", str(folder), "-c", str(main), "-e", str(folder / "error.log")]
    run(*command, "-t")
    with _running(command, port, folder):
        yield Proxy(port, certificate, folder)


@contextmanager
def caddy(gateway: str, folder: Path, changes: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """Run Caddy in front of a gateway, with certificates of its own authority."""
    port = free_port()
    options = CADDY_OPTIONS.format(http=free_port(), https=port, folder=folder)
    text = from_page("{\n", {"127.0.0.1:8010": gateway.removeprefix("http://"), **(changes or {})})
    file = folder / "Caddyfile"
    file.write_text(text.replace("{\n", "{" + options, 1))  # into the page's global options
    given = ("--adapter", "caddyfile", "--config", str(file))
    run(program("caddy"), "validate", *given)
    root = folder / "storage" / "pki" / "authorities" / "local" / "root.crt"
    with _running([program("caddy"), "run", *given], port, folder):
        yield Proxy(port, root, folder)


PROXIES: Mapping[str, Callable[[str, Path], AbstractContextManager[Proxy]]] = {"nginx": nginx, "caddy": caddy}


@contextmanager
def _running(command: Sequence[str], port: int, folder: Path) -> Iterator[None]:
    """Run a program until the block ends; it is up when its port answers with TLS."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    with (folder / "program.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _await_tls(port, process, folder / "program.log")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _await_tls(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    late = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text()
        try:
            with (
                closing(socket.create_connection(("127.0.0.1", port), timeout=1)) as wire,
                blind.wrap_socket(wire, server_hostname=NAME),
            ):
                return
        except OSError:
            assert time.monotonic() < late, log.read_text()
            time.sleep(0.02)


def program(name: str) -> str:
    """Return the path of a program, which may be one for administrators."""
    found = shutil.which(name, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin")))
    assert found is not None, f"{name} was asked for, and is not on the path"
    return found


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
