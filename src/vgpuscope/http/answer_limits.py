"""Limits on answers: rows, points, periods and streams, and the sizes from which answers are compressed."""

MOST_ROWS = 10**9  # of a table; a fleet is smaller, and so a page is as long as was asked for
POINTS, MOST_POINTS = 10_000, 100_000  # of a history: by default, and at most
LONGEST_PERIOD = 400 * 86400.0  # seconds that sums go back; the store keeps days no longer by default
STEPS_AT_ONCE = 6  # hours or days that are read from the store at once, so that memory does not grow with the period
COMPRESS_FROM = 1024  # bytes; below, a gzip header costs more than it saves
OFF_LOOP_FROM = 256 * 1024  # bytes; compressing and hashing less takes under 2 ms
GZIP_LEVEL = 3  # 5,000 rows, 5.6 MB: 484 kB in 21 ms; level 6 makes 395 kB in 53 ms
MOST_STREAMS = 64  # open at once in one process, of 256 connections
EVENTS_KEPT = 64  # for a client that reads slower than events come; then the oldest go
KEEP_ALIVE_EVERY = 15.0  # seconds; proxies cut a stream that is silent for 30 to 60
