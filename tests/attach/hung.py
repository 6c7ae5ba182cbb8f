"""Programs whose main thread stands still in a known place: `hung.py KIND FOLDER`.

Each goes on when it is released, and writes then to FOLDER/after what it found.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

SLEEP_S = 6.0
STEPS = 80


def when(path: Path, call: object) -> None:
    """Call `call()` on a thread of its own once there is a file `path`.

    A second one only waits: an attach needs a thread that is idle for longer than between two looks.
    """

    def wait() -> None:
        while not path.exists():
            time.sleep(0.05)
        call()  # type: ignore[operator]

    threading.Thread(target=wait, name="releaser", daemon=True).start()
    threading.Thread(target=threading.Event().wait, name="idle", daemon=True).start()


def wait_for_lock(folder: Path) -> str:
    """Wait for a lock that another thread will release."""
    lock = threading.Lock()
    lock.acquire()
    when(folder / "go", lock.release)
    lock.acquire()  # here: lock
    return "went on"


def wait_for_bytes(folder: Path) -> str:
    """Wait for bytes from a socket."""
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    receiver, _ = server.accept()
    when(folder / "go", lambda: sender.sendall(b"went on"))
    return receiver.recv(100).decode()  # here: recv


def sleep_long(folder: Path) -> str:
    """Sleep; say how long it really was."""
    when(folder / "never", print)
    began = time.monotonic()
    time.sleep(SLEEP_S)  # here: sleep
    return str(time.monotonic() - began)


def wait_in_native_code(folder: Path) -> str:
    """Wait in a C function, called without the interpreter's lock, until a signal comes."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    when(folder / "go", lambda: os.kill(os.getpid(), signal.SIGUSR1))
    libc = ctypes.CDLL(None)
    return f"went on with {libc.pause()}"  # here: native


def train_until_workers_block(folder: Path) -> str:
    """Train on batches of two workers, which deliver nothing between FOLDER/block and FOLDER/go."""
    gc.disable()
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 4 * STEPS

        def __getitem__(self, index: int) -> torch.Tensor:
            while (folder / "block").exists() and not (folder / "go").exists():
                time.sleep(0.02)
            return torch.randn(16, generator=torch.Generator().manual_seed(index))

    torch.manual_seed(5)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(net.parameters())
    # What was imported until now is no garbage, and to look for some takes a fifth of the start.
    gc.freeze()
    gc.unfreeze()
    gc.enable()
    digest = hashlib.sha256()
    when(folder / "never", print)
    (folder / "started").touch()
    for rows in DataLoader(Rows(), 4, num_workers=2):  # here: loader
        loss = net(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest.update(loss.detach().numpy().tobytes())
        time.sleep(0.0 if "hurry" in sys.argv else 0.05 if (folder / "go").exists() else 0.1)
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


KINDS = {
    "lock": wait_for_lock,
    "recv": wait_for_bytes,
    "sleep": sleep_long,
    "native": wait_in_native_code,
    "loader": train_until_workers_block,
}


def line_of(kind: str) -> int:
    """Return the line of this file in which a kind stands still."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# here: {kind}"))


if __name__ == "__main__":
    place = Path(sys.argv[2])
    said = KINDS[sys.argv[1]](place)
    (place / "after.new").write_text(said)
    (place / "after.new").rename(place / "after")
