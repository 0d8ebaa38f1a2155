"""What can keep a cluster from starting, as opposed to faults of this package."""


class Lacking(Exception):
    """This machine lacks something; the message is one sentence that names it."""


class Failed(Exception):
    """A program of the cluster did not do its work; the message has the end of its log."""
