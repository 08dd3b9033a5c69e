"""An nginx as a proxy, from Debian's package: unpacked below `.tidegate`, not installed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .processes import LOOPBACK, Keeper, free_ports, is_open, tail, wait_until

FOLDER = Path(__file__).parents[3] / ".tidegate" / "nginx"
CONFIGURATION = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream page {{ server {host}:{port}; keepalive 1; }}
    server {{
        listen {host}:{proxy};
        location / {{
            proxy_pass http://page;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
        }}
    }}
}}
"""


def nginx() -> Path | str:
    binary = FOLDER / "usr" / "sbin" / "nginx"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not binary.exists():
                if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
                    return "nginx comes from Debian's package, and this is no Debian"
                _run("apt-get", "download", "nginx")
                (package,) = FOLDER.glob("nginx_*.deb")
                _run("dpkg-deb", "--extract", package.name, ".")
                package.unlink()
            _run(str(binary), "-v")
        except (OSError, subprocess.SubprocessError) as error:
            return f"nginx cannot be had: {error}"
    return binary


def _run(*command: str) -> None:
    subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, timeout=60)


@contextmanager
def proxy(binary: Path, port: int) -> Iterator[int]:
    """The port of an nginx that forwards to this one over a persistent connection."""
    keeper = Keeper()
    try:
        (found,) = free_ports(1)
        folder, log = keeper.folder, keeper.folder / "nginx.log"
        (folder / "conf").write_text(CONFIGURATION.format(folder=folder, host=LOOPBACK, port=port, proxy=found))
        pid = keeper.start(log, binary, "-p", folder, "-c", folder / "conf", "-e", "stderr")
        wait_until(lambda: is_open(found) or keeper.status(pid) is not None, "nginx", 10)
        if (status := keeper.status(pid)) is not None:
            raise RuntimeError(f"nginx ended with status {status}:\n{tail(log)}")
        yield found
    finally:
        keeper.close()
