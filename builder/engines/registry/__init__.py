"""The registry, over HTTP: the one client that publishes and reads back what was published."""

from builder.engines.registry.client import PushedImage, Registry
from builder.engines.registry.credentials import Credentials, load_credentials
from builder.engines.registry.exchange import Patience, TransportFailedError, retry_after
from builder.engines.registry.hosts import is_loopback
from builder.engines.registry.referrers import Attachment
from builder.engines.registry.uploads import PushOutcome

__all__ = [
    "Attachment",
    "Credentials",
    "Patience",
    "PushOutcome",
    "PushedImage",
    "Registry",
    "TransportFailedError",
    "is_loopback",
    "load_credentials",
    "retry_after",
]
