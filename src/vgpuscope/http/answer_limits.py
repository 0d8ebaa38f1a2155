"""Limits on answers: rows, points, periods and streams, and the sizes from which answers are compressed."""

MOST_ROWS = 10**9  # of a table; every fleet is smaller, so a page is as long as requested
POINTS, MOST_POINTS = 10_000, 100_000  # of a history: default and maximum
LONGEST_PERIOD = 400 * 86400.0  # seconds that sums can go back; by default the store does not keep days longer
STEPS_AT_ONCE = 6  # hours or days read from the store at once, so that memory use does not grow with the period
COMPRESS_FROM = 1024  # bytes; below this, the gzip header is larger than the saving
OFF_LOOP_FROM = 256 * 1024  # bytes; compressing and hashing fewer bytes takes under 2 ms
GZIP_LEVEL = 3  # 5,000 rows, 5.6 MB: 484 kB in 21 ms; level 6 makes 395 kB in 53 ms
KEPT_BYTES = 48 * 2**20  # of finished answers that several clients ask for
MOST_STREAMS = 64  # open at once in one process, which has 256 connections
EVENTS_KEPT = 64  # buffered for a client that reads slower than events arrive; then the oldest are dropped
KEEP_ALIVE_EVERY = 15.0  # seconds; proxies close a stream that is silent for 30 to 60 s
