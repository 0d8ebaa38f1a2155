"""Limits on answers: rows, points, periods and streams, and the sizes from which answers are compressed."""

MOST_ROWS = 10**9  # of a table; every fleet is smaller, so a page is as long as requested
MOST_POINTS = 5000  # of one page of a history, 3 MB of JSON; a cursor continues after them
MOST_HISTORIES = 8  # pages of histories that are read or sent at once; a page holds its place until it is sent
MOST_WASTES, WASTES_WAITING = 1, 7  # sums over the history: at once, and waiting for their turn
LONGEST_PERIOD = 400 * 86400.0  # seconds that sums can go back; by default the store does not keep days longer
PIECE = 64 * 1024  # bytes sent at once of an answer that holds a place: a slow client does not fill the buffers
COMPRESS_FROM = 1024  # bytes; below this, the gzip header is larger than the saving
OFF_LOOP_FROM = 256 * 1024  # bytes; compressing and hashing fewer bytes takes under 2 ms
GZIP_LEVEL = 3  # 5,000 rows, 5.6 MB: 484 kB in 21 ms; level 6 makes 395 kB in 53 ms
KEPT_BYTES = 48 * 2**20  # of finished answers that several clients ask for
MOST_STREAMS = 64  # open at once in one process, which has 256 connections
EVENTS_KEPT = 64  # buffered for a client that reads slower than events arrive; then the oldest are dropped
KEEP_ALIVE_EVERY = 15.0  # seconds; proxies close a stream that is silent for 30 to 60 s
