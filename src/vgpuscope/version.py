"""What this build is. An image build writes revision and date here; a checkout says so."""

__version__ = "0.1.0"
REVISION = "checkout"
BUILD_DATE = "unknown"
