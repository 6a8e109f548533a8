"""A server made with the Python SDK, over the standard streams or over HTTP on the port that its argument names."""
import sys

from mcp.server import MCPServer
from pydantic import BaseModel

server = MCPServer("bakery")


class Cake(BaseModel):
    name: str
    slices: int


@server.tool()
def bake(name: str, slices: int = 8) -> Cake:
    """Bakes a cake."""
    return Cake(name=name, slices=slices)


@server.tool()
def burn() -> str:
    """Burns it."""
    raise ValueError("the oven is too hot")


if len(sys.argv) > 1:
    server.run(transport="streamable-http", port=int(sys.argv[1]))
else:
    server.run()
