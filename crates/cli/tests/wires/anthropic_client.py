"""The official Python client of Anthropic against a server of ours. Says what went wrong and ends with 1.

anthropic_client.py matrix BASE_URL KEY WRONG_KEY   everything that needs no server that dies
anthropic_client.py again BASE_URL KEY              reads half of a stream, says `killed?`, waits for a line, asks again
anthropic_client.py stopped BASE_URL KEY            reads half of a stream, says `killed?`, waits for a line, reads on in vain
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import anthropic
from pydantic import BaseModel

SLOW = "one two three four five six seven eight nine ten\neleven twelve"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "Looks out of the window.", "input_schema": SCHEMA}


class Ticket(BaseModel):
    title: str
    urgent: bool


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def user(content):
    return {"role": "user", "content": content}


def ask(client, content="hello", **more):
    messages = content if isinstance(content, list) else [user(content)]
    return client.messages.create(**{"model": "assistant", "max_tokens": 1000, "messages": messages, **more})


def text(message):
    return [block.text for block in message.content if block.type == "text"]


def refused(call, kind, name, code, param=None):
    try:
        call()
    except kind as error:
        body = error.body
        same((body["type"], body["error"]["type"]), ("error", name))
        same((body["error"]["code"], body["error"].get("param")), (code, param))
        return error
    raise AssertionError(f"{code} was not raised")


def said(events):
    return "".join(event.delta.text for event in events if event.type == "content_block_delta")


def models(client):
    same([(model.id, model.type) for model in client.models.list()], [("assistant", "model")])
    same(client.models.retrieve("assistant").display_name, "assistant")
    gone = lambda: client.models.retrieve("claude")
    refused(gone, anthropic.NotFoundError, "not_found_error", "agent.not_found", "model_id")


def errors(client, wrong_key):
    bad, unsupported = anthropic.BadRequestError, "parameter.unsupported"
    wrong = client.with_options(api_key=wrong_key)
    refused(lambda: wrong.models.list(), anthropic.AuthenticationError, "authentication_error", "key.invalid")
    refused(lambda: ask(wrong), anthropic.AuthenticationError, "authentication_error", "key.invalid")
    bearer = anthropic.Anthropic(base_url=client.base_url, api_key=None, auth_token=client.api_key, max_retries=0)
    same([model.id for model in bearer.models.list()], ["assistant"])
    refused(lambda: ask(client, model="claude"), anthropic.NotFoundError, "not_found_error", "agent.not_found", "model")
    no = lambda param, code=unsupported, **more: refused(
        lambda: ask(client, **more), bad, "invalid_request_error", code, param
    )
    no("temperature", extra_body={"temperature": 0.2})
    no("top_k", extra_body={"top_k": 5})
    no("stop_sequences", extra_body={"stop_sequences": ["stop"]})
    no("thinking", extra_body={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    no("tool_choice", tools=[WEATHER], tool_choice={"type": "any"})
    no("tools[0].type", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    no("tools[0].name", "input.invalid", tools=[{**WEATHER, "name": "no spaces"}])
    no("tools", "tool.duplicate", tools=[{**WEATHER, "name": "calculator"}])
    no("messages", "input.invalid", content=[])
    no("messages", "input.invalid", content=[user("hello"), {"role": "assistant", "content": "Re"}])
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    no("messages[0].content[0].source.type", content=[user([image])])
    broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "no"}}
    no("messages[0].content[0].source", "input.invalid", content=[user([broken])])
    no("max_tokens", "input.invalid", max_tokens=0)
    late = [user("hello"), user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "snow"}])]
    no("messages[1].content[0].tool_use_id", "input.invalid", content=late)
    gone = lambda: client.messages.count_tokens(model="assistant", messages=[user("hello")])
    refused(gone, anthropic.NotFoundError, "not_found_error", "route.not_found")
    fine = ask(client, metadata={"user_id": "ann"}, extra_body={"temperature": 1, "stop_sequences": []})
    same(text(fine), ["Reply to hello."])


def plain(client):
    message = ask(client, system="Be kind.")
    same((message.type, message.role, message.model), ("message", "assistant", "assistant"))
    same((text(message), message.stop_reason), (["Reply to hello."], "end_turn"))
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0
    blocks = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    same(text(ask(client, [user([{"type": "text", "text": "hello"}])], system=blocks)), ["Reply to hello."])
    # A conversation goes on where it was had, as long as it is told as it was.
    first = ask(client, "good morning")
    told = [user("good morning"), {"role": "assistant", "content": first.content}, user("and now?")]
    same(text(ask(client, told)), ["Reply to and now?."])


def files(client):
    """Images and documents that a request holds are attachments of the session."""
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    content = [{"type": "text", "text": "what is this?"}, {"type": "image", "source": source}]
    first = ask(client, [user(content)])
    same(text(first), ["Reply to what is this?."])
    told = [user(content), {"role": "assistant", "content": first.content}, user("and now?")]
    same(text(ask(client, told)), ["Reply to and now?."])
    # Where it cannot go on, what was said is brought along, with its files.
    same(text(ask(client, told, extra_headers={"Idempotency-Key": "files"})), ["Reply to and now?."])


def streaming(client):
    events = list(ask(client, "slowly", stream=True))
    kinds = [event.type for event in events]
    same(kinds[:2], ["message_start", "content_block_start"])
    same(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
    deltas = [event.delta.text for event in events if event.type == "content_block_delta"]
    same(("".join(deltas), len(deltas)), (SLOW, 12))
    with client.messages.stream(model="assistant", max_tokens=1000, messages=[user("slowly")]) as stream:
        same("".join(stream.text_stream), SLOW)
        final = stream.get_final_message()
    same((text(final), final.stop_reason), ([SLOW], "end_turn"))
    # Tools of the agent run on the server; what the model says before and after them are blocks of their own.
    same(text(ask(client, "steps")), ["Let me see.", "42"])
    with client.messages.stream(model="assistant", max_tokens=1000, messages=[user("steps")]) as stream:
        same(text(stream.get_final_message()), ["Let me see.", "42"])


def tools(client):
    for streams in (False, True):
        conversation = [user(f"weather, {streams}")]
        if streams:
            with client.messages.stream(model="assistant", max_tokens=1000, messages=conversation, tools=[WEATHER]) as stream:
                asked = stream.get_final_message()
        else:
            asked = ask(client, conversation, tools=[WEATHER])
        same(asked.stop_reason, "tool_use")
        call = next(block for block in asked.content if block.type == "tool_use")
        same((call.name, call.input), ("weather", {"city": "Oslo"}))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "snow"}
        conversation += [{"role": "assistant", "content": asked.content}, user([result])]
        answer = ask(client, conversation, tools=[WEATHER])
        same((text(answer), answer.stop_reason), (["It is snow there."], "end_turn"))
        # The same results again are the same answer; other ones are not taken.
        same(ask(client, conversation, tools=[WEATHER]).to_dict(), answer.to_dict())
        result["content"] = "rain"
        other = lambda: ask(client, conversation, tools=[WEATHER])
        refused(other, anthropic.APIStatusError, "invalid_request_error", "input.key_reused", "messages")
        result["content"] = "snow"
        # The turn goes on as it was asked: what was said of it otherwise is not left away.
        changed = lambda param, **more: refused(
            lambda: ask(client, conversation, **{"tools": [WEATHER], **more}),
            anthropic.BadRequestError, "invalid_request_error", "input.invalid", param,
        )
        changed("system", system="Be brief.")
        changed("tools", tools=[{**WEATHER, "description": "Guesses."}])
        conversation += [{"role": "assistant", "content": answer.content}, user("thanks")]
        same(text(ask(client, conversation, tools=[WEATHER])), ["Reply to thanks."])
    failing = ask(client, "weather that fails", tools=[WEATHER])
    call = failing.content[-1]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "no window", "is_error": True}
    told = [user("weather that fails"), {"role": "assistant", "content": failing.content}, user([result])]
    assert "no window" in text(ask(client, told, tools=[WEATHER]))[0]


def structured(client):
    parsed = client.messages.parse(
        model="assistant", max_tokens=1000, messages=[user("ticket")], output_format=Ticket
    )
    same(parsed.parsed_output, Ticket(title="broken lamp", urgent=True))
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    config = {"format": {"type": "json_schema", "schema": schema}}
    events = list(ask(client, "ticket again", output_config=config, stream=True))
    said = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    same(json.loads(said)["title"], "broken lamp")


def idempotency(client):
    headers = {"Idempotency-Key": "one"}
    first = ask(client, "hello", extra_headers=headers)
    same(ask(client, "hello", extra_headers=headers).to_dict(), first.to_dict())
    assert ask(client, "hello").id != first.id
    for more in ({"content": "something else"}, {"system": "Be brief."}, {"tools": [WEATHER]}):
        other = lambda: ask(client, **{"content": "hello", "extra_headers": headers, **more})
        refused(other, anthropic.ConflictError, "invalid_request_error", "input.key_reused")


def requests(client):
    """The id of a request is where these clients look for it."""
    headers = {"X-Client-Request-Id": "req-7"}
    same(ask(client, extra_headers=headers)._request_id, "req-7")
    error = refused(
        lambda: ask(client, model="claude", extra_headers=headers),
        anthropic.NotFoundError, "not_found_error", "agent.not_found", "model",
    )
    same((error.request_id, error.body["request_id"]), ("req-7", "req-7"))


def ends(client):
    """Every end of a turn, whole and streamed."""
    for content, reason, words in (("refuses", "refusal", "I will not."), ("runs out", "max_tokens", "one two")):
        message = ask(client, content)
        same((text(message), message.stop_reason), ([words], reason))
        events = list(ask(client, content, stream=True))
        same((said(events), events[-2].delta.stop_reason), (words, reason))
    for content, code in (("unauthorized", "model.unauthorized"), ("breaks", "model.cut")):
        # The status is about the turn, not about the caller: a key that the provider does not take is not the caller's.
        error = refused(lambda: ask(client, content), anthropic.APIStatusError, "api_error", code)
        message, turn = error.body["error"]["message"], error.body["error"]["turn"]
        same((error.status_code, message.startswith(f"{code}: "), message.endswith(f" ({turn})")), (406, True, True))
        streamed = lambda: list(ask(client, content, stream=True))
        refused(streamed, anthropic.APIStatusError, "api_error", code)


def once(url, key):
    """A client that makes requests again by itself does not make turns again."""
    client = anthropic.Anthropic(base_url=url, api_key=key, timeout=60)
    api = url.removesuffix("/anthropic")
    bearer = {"headers": {"Authorization": f"Bearer {key}"}}
    sessions = lambda: client.get(f"{api}/v1/sessions?limit=500", cast_to=object, options=bearer)["items"]
    before = len(sessions())
    failing = lambda: ask(client, "unauthorized, once")
    refused(failing, anthropic.APIStatusError, "api_error", "model.unauthorized")
    same(len(sessions()) - before, 1)
    with ThreadPoolExecutor(max_workers=1) as pool:
        endless = lambda: ask(client, "forever, once")
        refusal = (anthropic.APIStatusError, "api_error", "turn.cancelled")
        cancelled = pool.submit(lambda: refused(endless, *refusal))
        named = lambda: [session for session in sessions() if session["title"] == "forever, once"]
        running = lambda: [session["active"] for session in named() if "active" in session]
        while not running():
            time.sleep(0.05)
        cancel = f"{api}/openai/v1/responses/{running()[0].replace('trn_', 'resp_')}/cancel"
        client.post(cancel, cast_to=object, body={}, options=bearer)
        cancelled.result()
    same(len(sessions()) - before, 2)


def dropped(client):
    """A message whose connection was dropped is made again under its key, and is the same to the last byte."""
    again = lambda: ask(client, "slowly", stream=True, extra_headers={"Idempotency-Key": "dropped"})
    stream, heard = again(), []
    for event in stream:
        heard.append(event.to_dict())
        if event.type == "content_block_delta" and event.delta.text == "five ":
            break
    stream.close()
    events = list(again())
    same(said(events), SLOW)
    same([event.to_dict() for event in events][: len(heard)], heard)
    same([event.to_dict() for event in again()], [event.to_dict() for event in events])


def stopped(client):
    """A stream that the server ends before its time is an error, and no answer that looks whole."""
    stream, heard = ask(client, "haltingly", stream=True), ""
    for event in stream:
        heard += event.delta.text if event.type == "content_block_delta" else ""
        if heard == "one two ":
            break
    print("killed?", flush=True)
    sys.stdin.readline()
    try:
        for _ in stream:
            pass
    except Exception as error:
        print(f"broken: {type(error).__name__}", file=sys.stderr)
        return
    raise AssertionError("a stream that was cut ended as if it were whole")


def again(client):
    """A request whose connection broke is made again under its key, and gets the same text."""
    headers = {"Idempotency-Key": "slow"}
    heard = ""
    try:
        for event in ask(client, "slowly", stream=True, extra_headers=headers):
            if event.type == "content_block_delta":
                heard += event.delta.text
                if heard == "one two ":
                    print("killed?", flush=True)
                    sys.stdin.readline()
    except Exception as error:
        print(f"broken: {type(error).__name__}", file=sys.stderr)
    assert SLOW.startswith(heard) and heard != SLOW, heard
    events = list(ask(client, "slowly", stream=True, extra_headers=headers))
    said = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    same(said, SLOW)
    whole = ask(client, "slowly", extra_headers=headers)
    same((text(whole), whole.id), ([SLOW], events[0].message.id))


def main():
    mode, url, key, *more = sys.argv[1:]
    client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=60)
    if mode == "again":
        again(client)
    elif mode == "stopped":
        stopped(client)
    else:
        models(client)
        errors(client, more[0])
        plain(client)
        files(client)
        streaming(client)
        tools(client)
        structured(client)
        idempotency(client)
        requests(client)
        ends(client)
        once(url, key)
        dropped(client)
    print("fine")


main()
