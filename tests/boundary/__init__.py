"""The neighbour fuzzer: tables that differ in one person, opened and counted by every engine."""

from boundary.adapters import Adapter
from boundary.codes import CODES
from boundary.files import FILES
from boundary.frames import FRAMES
from boundary.servers import SERVERS

ADAPTERS: dict[str, Adapter] = {adapter.name: adapter for adapter in (*FILES, *FRAMES, *SERVERS, *CODES)}
"""Every way to hand over a table."""
