"""The client's side: connections that read requests, and the bodies they bring.

`connection` speaks HTTP/1.1 with a client (llhttp reads it); `request` is what it has read; `server`
in the folder above decides who serves it.
"""

from proxy.downstream.connection import ClientConnection
from proxy.downstream.request import Request, Upload

__all__ = ["ClientConnection", "Request", "Upload"]
