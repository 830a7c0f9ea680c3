"""What TensorFlow's profiler saw of one training step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2


@dataclass(frozen=True)
class Event:
    """Times in picoseconds."""

    start: int
    end: int
    name: str
    stats: dict[str, Any]


class Profile(keras.callbacks.Callback):  # type: ignore[misc]
    """Profiles the second batch of a fit."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)
            tf.profiler.experimental.start(str(self.folder), options)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            tf.profiler.experimental.stop()

    def events(self) -> list[Event]:
        """In the order of their starts."""
        (path,) = self.folder.rglob("*.xplane.pb")
        found = []
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
            for line in plane.lines:
                for one in line.events:
                    start = line.timestamp_ns * 1000 + one.offset_ps
                    name = plane.event_metadata[one.metadata_id].name
                    stats = {
                        plane.stat_metadata[s.metadata_id].name: _value(plane, s) for s in one.stats
                    }
                    found.append(Event(start, start + one.duration_ps, name, stats))
        return sorted(found, key=lambda event: event.start)


def operations(events: list[Event]) -> dict[str, Event]:
    """The run of each operation, by its name."""
    return {event.name.rpartition(":")[0]: event for event in events if ":" in event.name}


def _value(plane: Any, stat: Any) -> Any:
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind) if kind else ""
    return plane.stat_metadata[value].name if kind == "ref_value" else value
