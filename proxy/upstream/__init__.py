"""The client leg: requests to one configured upstream, over connections of our own."""

from proxy.upstream.address import Address
from proxy.upstream.call import Call, Sink
from proxy.upstream.origin import Origin
from proxy.upstream.wire import Headers, ResponseHead

__all__ = ["Address", "Call", "Headers", "Origin", "ResponseHead", "Sink"]
