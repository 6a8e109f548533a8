"""A client of the official SDK: makes the calls that its first argument lists, and tells what came, a line of JSON each.

The rest of the arguments is where the server is: an address, or a program and what it is passed.
"""

import asyncio
import json
import logging
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp_types import ElicitResult

logging.disable(logging.CRITICAL)


def tell(what, **said):
    print(json.dumps({"what": what, **said}), flush=True)


def flat(result):
    texts = [block.text for block in result.content if block.type == "text"]
    return {"text": "\n".join(texts), "error": bool(result.is_error), "said": result.structured_content}


async def run(step, client):
    kind = step["do"]
    if kind == "tools":
        tools = (await client.list_tools()).tools
        tell("tools", tools=[{"name": t.name, "takes": sorted(t.input_schema["properties"])} for t in tools])
    elif kind == "call":
        async def progress(done, total, message):
            tell("progress", done=done, message=message)
        result = await client.call_tool(step["tool"], step["with"], progress_callback=progress if step.get("watch") else None)
        tell("result", **flat(result))
    elif kind == "cancel":
        heard = asyncio.Event()
        async def progress(done, total, message):
            heard.set()
        call = asyncio.create_task(client.call_tool(step["tool"], step["with"], progress_callback=progress))
        await heard.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        tell("cancelled")
    elif kind == "resources":
        page = await client.list_resources(cursor=step.get("cursor"))
        found = [{"uri": r.uri, "title": r.title, "kind": r.mime_type} for r in page.resources]
        tell("resources", found=found, more=page.next_cursor is not None)
    elif kind == "read":
        contents = (await client.read_resource(step["uri"])).contents
        tell("read", kind=contents[0].mime_type, text=contents[0].text)
    elif kind == "templates":
        tell("templates", found=[t.uri_template for t in (await client.list_resource_templates()).resource_templates])


async def main():
    plan, *where = sys.argv[1:]
    plan = json.loads(plan)

    async def asked(context, params):
        tell("asked", message=params.message, takes=sorted(params.requested_schema["properties"]))
        return ElicitResult(**plan["answers"].pop(0))

    if where[0].startswith("http"):
        headers = {"authorization": f"Bearer {plan['key']}"} if "key" in plan else {}
        server = streamable_http_client(where[0], http_client=create_mcp_http_client(headers=headers))
    else:
        server = StdioServerParameters(command=where[0], args=where[1:], cwd=plan["cwd"])
    elicits = asked if "answers" in plan else None
    try:
        async with Client(server, mode=plan.get("mode", "auto"), elicitation_callback=elicits) as client:
            tell("connected", version=client.protocol_version)
            for step in plan["steps"]:
                try:
                    await run(step, client)
                except Exception as error:
                    tell("failed", error=str(error))
    except BaseException as error:
        tell("gone", error=type(error).__name__)


asyncio.run(main())
