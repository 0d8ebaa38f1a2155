"""The units of all values inside the program: bytes, seconds, ratios 0-1, watts, joules, hertz."""

from typing import TypeAlias

Bytes: TypeAlias = int
Ratio: TypeAlias = float
Seconds: TypeAlias = float
UnixTime: TypeAlias = float  # seconds since 1970, UTC
Watts: TypeAlias = float
Joules: TypeAlias = float
Celsius: TypeAlias = float
Hertz: TypeAlias = float

DeviceUUID: TypeAlias = str  # GPU-… for a GPU, MIG-… for an instance
PodUID: TypeAlias = str
Pid: TypeAlias = int

MIB = 1024 * 1024
