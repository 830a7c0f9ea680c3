"""Members on several hosts learn at once that another one has ended.

On one host, shared memory tells it. Between hosts, MPI may wait for a lost peer until its timeout.
So each member keeps a TCP connection to rank 0's. The kernel ends it however a member ends, and its
keep-alive packets find out that a host is gone or cannot be reached. Rank 0 tells the others. A
member that is stopped, or computes, keeps its connection.

Rank 0 listens until all have come. Both sides prove that they know a key, which rank 0 makes anew
for each group, and which goes by MPI alone. Where no TCP passes, the timeout is what there was.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds that an operation goes on after a loss. A rank that has had its result may leave, and
#: what it has sent comes later than the end of its connection.
_GRACE = 0.3
_HANDSHAKE = 3.0  # seconds for each step of it
_GONE = 10  # seconds without an answer to keep-alive packets
_INVITATION = 1024  # bytes
_RANK = struct.Struct("!I")
_NONCE = 32  # bytes
_PROOF = hashlib.sha256().digest_size
_SIOCGIFADDR = 0x8915
_MOST_ADDRESSES = 16


def watch(rank: int, size: int, seconds: float, lost: Callable[[int], None]) -> None:
    """Have a thread call `lost` with the first rank that ends; collective over torch's WORLD.

    Args:
        rank, size: of this member.
        seconds: for the others to come to rank 0.
        lost: is called from another thread, at most once.
    """
    invitation = torch.zeros(_INVITATION, dtype=torch.uint8)
    if rank == 0:
        center = _Center(size, lost)
        words = json.dumps([center.key.hex(), center.port, own_addresses()]).encode()
        invitation[: len(words)] = torch.frombuffer(bytearray(words), dtype=torch.uint8)
        _begin(center.gather, seconds)
    dist.broadcast(invitation, 0)
    if rank:
        key, port, addresses = json.loads(bytes(invitation.tolist()).rstrip(b"\0"))
        _begin(_attend, rank, bytes.fromhex(key), port, addresses, lost)


class _Center:
    """Rank 0's side."""

    def __init__(self, size: int, lost: Callable[[int], None]) -> None:
        self.key = secrets.token_bytes(32)
        self._listener = socket.create_server(("", 0), backlog=min(size, 1024))
        self.port: int = self._listener.getsockname()[1]
        self._missing = set(range(1, size))
        self._others: dict[int, socket.socket] = {}
        self._lock = threading.Lock()  # of the three, and of `_first`
        self._first: int | None = None
        self._lost = lost

    def gather(self, seconds: float) -> None:
        """Take the others' connections; nobody listens any more when all have come."""
        deadline = time.monotonic() + seconds
        with self._listener:
            while self._missing and (left := deadline - time.monotonic()) > 0:
                self._listener.settimeout(min(left, 1.0))
                with contextlib.suppress(OSError):
                    connection, _ = self._listener.accept()
                    _begin(self._take, connection)

    def _take(self, connection: socket.socket) -> None:
        """One that comes, until it ends; a stranger is not heard."""
        with connection, connection.makefile("rwb") as file:
            try:
                connection.settimeout(_HANDSHAKE)
                rank = _let_in(file, self.key)
            except OSError:
                return
            _keep_alive(connection)
            with self._lock:
                if rank not in self._missing:
                    return
                self._missing.remove(rank)
                self._others[rank] = connection
                if self._first is not None:
                    self._tell(connection)
            with contextlib.suppress(OSError):
                file.read(1)  # nothing comes
            self._miss(rank)

    def _miss(self, rank: int) -> None:
        with self._lock:
            self._others.pop(rank)
            if self._first is not None:
                return
            self._first = rank
            for connection in self._others.values():
                self._tell(connection)
        time.sleep(_GRACE)
        self._lost(rank)

    def _tell(self, connection: socket.socket) -> None:
        assert self._first is not None
        with contextlib.suppress(OSError):
            connection.sendall(_RANK.pack(self._first))


def _attend(
    rank: int, key: bytes, port: int, addresses: list[str], lost: Callable[[int], None]
) -> None:
    """The others' side: wait for the first loss that rank 0 tells, or for its own."""
    for address in addresses:  # nobody knows which one leads there
        try:
            connection = socket.create_connection((address, port), _HANDSHAKE)
        except OSError:
            continue
        with connection, connection.makefile("rwb") as file:
            try:
                _come_in(file, key, rank)
            except OSError:
                continue
            _keep_alive(connection)
            said = b""
            with contextlib.suppress(OSError):
                said = file.read(_RANK.size)
            time.sleep(_GRACE)
            lost(_RANK.unpack(said)[0] if len(said) == _RANK.size else 0)
        return


def _let_in(file: Any, key: bytes) -> int:
    """The rank of the member at the other end.

    Raises:
        OSError: it is none, or does not answer.
    """
    ours = secrets.token_bytes(_NONCE)
    _write(file, ours)
    said = _read(file, _RANK.size + _NONCE + _PROOF)
    words, proof = said[:-_PROOF], said[-_PROOF:]
    if not hmac.compare_digest(proof, _proof(key, b"rank", ours, words)):
        raise ConnectionAbortedError
    _write(file, _proof(key, b"center", ours, words))
    rank: int = _RANK.unpack_from(words)[0]
    return rank


def _come_in(file: Any, key: bytes, rank: int) -> None:
    """The other side of `_let_in`; OSError: it is not rank 0."""
    theirs = _read(file, _NONCE)
    words = _RANK.pack(rank) + secrets.token_bytes(_NONCE)
    _write(file, words + _proof(key, b"rank", theirs, words))
    if not hmac.compare_digest(_read(file, _PROOF), _proof(key, b"center", theirs, words)):
        raise ConnectionAbortedError


def _proof(key: bytes, side: bytes, nonce: bytes, words: bytes) -> bytes:
    return hmac.digest(key, side + nonce + words, "sha256")


def _write(file: Any, data: bytes) -> None:
    file.write(data)
    file.flush()


def _read(file: Any, nbytes: int) -> bytes:
    data: bytes = file.read(nbytes)
    if len(data) < nbytes:
        raise ConnectionAbortedError
    return data


def _keep_alive(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 2),
        (socket.TCP_KEEPCNT, _GONE // 2 - 1),
        (socket.TCP_USER_TIMEOUT, 1000 * _GONE),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def own_addresses() -> list[str]:
    """The IPv4 addresses of this host, one of each interface; the loopback's is the last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])  # struct ifreq
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    return sorted(found, key=lambda address: address.startswith("127."))[:_MOST_ADDRESSES]


def _begin(target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, name="ddl-watch", daemon=True).start()
