"""The official Python client of OpenAI against a server of ours. Says what went wrong and ends with 1.

openai_client.py matrix BASE_URL KEY WRONG_KEY   everything that needs no server that dies
openai_client.py resume BASE_URL KEY             reads half of a stream, says `killed?`, waits for a line, reads the rest
openai_client.py again BASE_URL KEY              the same with a completion, which is asked for again under its key
openai_client.py stopped BASE_URL KEY            reads half of two streams, says `killed?`, waits for a line, reads on in vain
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import openai
from pydantic import BaseModel

SLOW = "one two three four five six seven eight nine ten\neleven twelve"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Looks out of the window.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Ticket(BaseModel):
    title: str
    urgent: bool


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def refused(call, kind, code, param=None):
    try:
        call()
    except kind as error:
        same((error.code, error.param), (code, param))
        return error
    raise AssertionError(f"{code} was not raised")


def user(text):
    return [{"role": "user", "content": text}]


def said(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def models(client):
    same([model.id for model in client.models.list()], ["assistant"])
    same(client.models.retrieve("assistant").owned_by, "outlast")
    refused(lambda: client.models.retrieve("gpt-5"), openai.NotFoundError, "agent.not_found", "model")


def errors(client, wrong_key):
    ask = lambda **more: client.responses.create(**{"model": "assistant", "input": "hello", **more})
    wrong = client.with_options(api_key=wrong_key)
    refused(lambda: wrong.models.list(), openai.AuthenticationError, "key.invalid")
    refused(lambda: wrong.responses.create(input="hello"), openai.AuthenticationError, "key.invalid")
    refused(lambda: ask(model="gpt-5"), openai.NotFoundError, "agent.not_found", "model")
    refused(lambda: ask(temperature=0.2), openai.BadRequestError, "parameter.unsupported", "temperature")
    refused(lambda: ask(tool_choice="required"), openai.BadRequestError, "parameter.unsupported", "tool_choice")
    search = [{"type": "web_search"}]
    refused(lambda: ask(tools=search), openai.BadRequestError, "parameter.unsupported", "tools[0].type")
    bad = [{**WEATHER, "name": "no spaces"}]
    refused(lambda: ask(tools=bad), openai.BadRequestError, "input.invalid", "tools[0].name")
    taken = [{**WEATHER, "name": "calculator"}]
    refused(lambda: ask(tools=taken), openai.BadRequestError, "tool.duplicate", "tools")
    refused(lambda: ask(input=[]), openai.BadRequestError, "input.invalid", "input")
    refused(lambda: ask(input=[{"role": "user", "content": 5}]), openai.BadRequestError, "input.invalid", "input[0].content")
    refused(lambda: ask(stream="yes"), openai.BadRequestError, "input.invalid", "stream")
    nobody = "resp_" + "7" * 32
    refused(lambda: client.responses.retrieve(nobody), openai.NotFoundError, "turn.not_found")
    refused(lambda: ask(previous_response_id=nobody), openai.NotFoundError, "turn.not_found", "previous_response_id")
    refused(lambda: ask(conversation="conv_" + "7" * 32), openai.NotFoundError, "session.not_found", "conversation")
    refused(lambda: client.embeddings.create(model="assistant", input="x"), openai.NotFoundError, "route.not_found")
    say = lambda **more: client.chat.completions.create(
        **{"model": "assistant", "messages": [{"role": "user", "content": "hello"}], **more}
    )
    refused(lambda: say(model="gpt-5"), openai.NotFoundError, "agent.not_found", "model")
    refused(lambda: say(n=2), openai.BadRequestError, "parameter.unsupported", "n")
    refused(lambda: say(messages=[]), openai.BadRequestError, "input.invalid", "messages")
    fine = ask(temperature=1, user="ann", store=True, metadata={"a": "b"}, service_tier="auto")
    same((fine.output_text, fine.metadata), ("Reply to hello.", {"a": "b"}))
    same(client.responses.retrieve(fine.id).metadata, {"a": "b"})


def plain(client):
    response = client.responses.create(model="assistant", input="hello", instructions="Be kind.")
    same((response.status, response.output_text), ("completed", "Reply to hello."))
    same(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)
    again = client.responses.retrieve(response.id)
    same(again.to_dict(), response.to_dict())
    completion = client.chat.completions.create(
        model="assistant",
        messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}],
    )
    same(completion.choices[0].message.content, "Reply to hello.")
    same(completion.choices[0].finish_reason, "stop")
    assert completion.usage.total_tokens > 0


def files(client, sessions):
    """Images and files that a request holds are attachments of the session."""
    url = "data:image/png;base64,iVBORw0KGgo="
    image, file = {"type": "input_image", "image_url": url}, {"type": "input_file", "filename": "a.png", "file_data": url}
    for part in (image, file):
        content = [{"type": "input_text", "text": "what is this?"}, part]
        response = client.responses.create(model="assistant", input=[{"role": "user", "content": content}])
        same(response.output_text, "Reply to what is this?.")
        (item,) = client.responses.input_items.list(response.id).data
        same([part.type for part in item.content], ["input_text", "input_file"])
    away = {"type": "input_image", "image_url": "https://example.com/a.png"}
    ask = lambda: client.responses.create(model="assistant", input=[{"role": "user", "content": [away]}])
    refused(ask, openai.BadRequestError, "parameter.unsupported", "input[0].content[0].image_url")
    before = len(sessions())
    say = lambda messages, **more: client.chat.completions.create(model="assistant", messages=messages, **more)
    content = [{"type": "text", "text": "a picture: "}, {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": content}]
    messages.append({"role": "assistant", "content": say(messages).choices[0].message.content})
    messages += user("and now?")
    same(say(messages).choices[0].message.content, "Reply to and now?.")
    same(len(sessions()) - before, 1)
    # Where it cannot go on, what was said is brought along, with its files; another picture is another conversation.
    same(say(messages, extra_headers={"Idempotency-Key": "f"}).choices[0].message.content, "Reply to and now?.")
    content[1]["image_url"]["url"] = "data:image/png;base64,iVBORw0KGgoA"
    same(say(messages).choices[0].message.content, "Reply to and now?.")
    same(len(sessions()) - before, 3)


def streaming(client):
    events = list(client.responses.create(model="assistant", input="slowly", stream=True))
    kinds = [event.type for event in events]
    same(kinds[:4], ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"])
    same(kinds[-4:], ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"])
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    same(("".join(deltas), len(deltas)), (SLOW, 12))
    numbers = [event.sequence_number for event in events]
    same(numbers, sorted(set(numbers)))
    final = events[-1].response
    same(final.output_text, SLOW)
    same(client.responses.retrieve(final.id).to_dict(), final.to_dict())
    # The whole stream again, and from each of its events on: the same events.
    again = list(client.responses.retrieve(final.id, stream=True))
    same([event.to_dict() for event in again], [event.to_dict() for event in events])
    for at in (0, 3, 7, len(events) - 2):
        rest = client.responses.retrieve(final.id, stream=True, starting_after=numbers[at])
        same([event.sequence_number for event in rest], numbers[at + 1 :])
    # A number that covers another text is that of a reader whose text is void.
    void = client.responses.retrieve(final.id, stream=True, starting_after=numbers[7] ^ 1)
    refused(lambda: list(void), openai.APIError, "stream.retracted")
    options = {"include_obfuscation": False}
    last = list(client.responses.create(model="assistant", input="hello", stream=True, stream_options=options))[-1]
    same(last.response.output_text, "Reply to hello.")
    with client.responses.stream(model="assistant", input="slowly") as stream:
        same(stream.get_final_response().output_text, SLOW)
    chunks = list(
        client.chat.completions.create(
            model="assistant",
            messages=[{"role": "user", "content": "slowly"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), SLOW)
    same(chunks[-2].choices[0].finish_reason, "stop")
    assert chunks[-1].usage.completion_tokens > 0


def server_tool(client):
    response = client.responses.create(model="assistant", input="in steps")
    same([item.type for item in response.output], ["message", "mcp_call", "message"])
    call = response.output[1]
    same((call.name, json.loads(call.arguments), call.output), ("calculator", {"expression": "6*7"}, "42"))
    same(response.output[2].content[0].text, "42")
    kinds = [event.type for event in client.responses.create(model="assistant", input="in steps", stream=True)]
    assert "response.mcp_call.completed" in kinds, kinds
    completion = client.chat.completions.create(model="assistant", messages=[{"role": "user", "content": "in steps"}])
    same(completion.choices[0].message.content, "Let me see.\n\n42")


def client_tool(client):
    first = client.responses.create(model="assistant", input="weather", tools=[WEATHER])
    same((first.status, [item.type for item in first.output]), ("completed", ["function_call"]))
    call = first.output[0]
    same((call.name, json.loads(call.arguments)), ("weather", {"city": "Oslo"}))
    late = lambda: client.responses.create(model="assistant", input="well?", previous_response_id=first.id)
    refused(late, openai.BadRequestError, "input.invalid", "previous_response_id")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "snow"}
    give = lambda **more: client.responses.create(
        **{"model": "assistant", "input": [output], "tools": [WEATHER], "previous_response_id": first.id, **more}
    )
    second = give()
    same((second.output_text, second.previous_response_id), ("It is snow there.", first.id))
    same(second.conversation.id, first.conversation.id)
    same(give().to_dict(), second.to_dict())
    refused(lambda: give(input=[{**output, "output": "rain"}]), openai.ConflictError, "input.key_reused", "input")
    # The turn goes on as it was asked: what was said of it otherwise is not left away.
    other = lambda param, **more: refused(lambda: give(**more), openai.BadRequestError, "input.invalid", param)
    other("instructions", instructions="Be brief.")
    other("tools", tools=[{**WEATHER, "description": "Guesses."}])
    other("text.format", text={"format": {"type": "json_object"}})
    other("metadata", metadata={"a": "b"})
    other("previous_response_id", previous_response_id=second.id)
    same(give(tools=[], previous_response_id=None).id, second.id)
    given = client.responses.input_items.list(second.id).data
    same([(item.type, item.call_id, item.output) for item in given], [("function_call_output", call.call_id, "snow")])
    # The way of clients that keep the conversation themselves, streamed.
    items = [{"role": "user", "content": "weather"}]
    events = list(client.responses.create(model="assistant", input=items, tools=[WEATHER], stream=True))
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    same([json.loads(event.arguments) for event in done], [{"city": "Oslo"}])
    items += [item.to_dict() for item in events[-1].response.output]
    items.append({"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "hail"})
    events = list(client.responses.create(model="assistant", input=items, tools=[WEATHER], stream=True))
    same(events[-1].response.output_text, "It is hail there.")
    # Chat Completions.
    tools = [{"type": "function", "function": {key: WEATHER[key] for key in ("name", "description", "parameters")}}]
    messages = [{"role": "user", "content": "weather"}]
    completion = client.chat.completions.create(model="assistant", messages=messages, tools=tools)
    choice = completion.choices[0]
    same((choice.finish_reason, choice.message.tool_calls[0].function.name), ("tool_calls", "weather"))
    messages.append(choice.message.to_dict())
    messages.append({"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": "fog"})
    completion = client.chat.completions.create(model="assistant", messages=messages, tools=tools)
    same(completion.choices[0].message.content, "It is fog there.")
    stream = client.chat.completions.create(model="assistant", messages=messages[:1], tools=tools, stream=True)
    calls = [call for chunk in stream for call in (chunk.choices[0].delta.tool_calls or [])]
    same([(call.index, call.function.name) for call in calls], [(0, "weather")])


def structured(client):
    parsed = client.responses.parse(model="assistant", input="a ticket", text_format=Ticket)
    same(parsed.output_parsed, Ticket(title="broken lamp", urgent=True))
    completion = client.chat.completions.parse(
        model="assistant", messages=[{"role": "user", "content": "a ticket"}], response_format=Ticket
    )
    same(completion.choices[0].message.parsed, Ticket(title="broken lamp", urgent=True))


def conversations(client):
    first = client.responses.create(model="assistant", input="I am Ann")
    second = client.responses.create(model="assistant", input="who?", previous_response_id=first.id)
    same((second.previous_response_id, second.conversation.id), (first.id, first.conversation.id))
    # A second response behind the first goes into a session of its own, which begins as the other one did.
    branch = client.responses.create(model="assistant", input="and?", previous_response_id=first.id)
    assert branch.conversation.id != first.conversation.id
    conversation = client.conversations.create()
    for text in ("one", "two"):
        response = client.responses.create(model="assistant", input=text, conversation=conversation.id)
        same(response.conversation.id, conversation.id)
    items = client.conversations.items.list(conversation.id, order="asc").data
    said = [(item.role, item.content[0].text) for item in items]
    same(said, [("user", "one"), ("assistant", "Reply to one."), ("user", "two"), ("assistant", "Reply to two.")])
    page = client.conversations.items.list(conversation.id, order="asc", limit=1)
    same([item.content[0].text for item in page], ["one", "Reply to one.", "two", "Reply to two."])
    newest = client.conversations.items.list(conversation.id, limit=1)
    same([item.content[0].text for item in newest], ["Reply to two.", "two", "Reply to one.", "one"])
    elsewhere = lambda: client.conversations.items.list(conversation.id, after="msg_" + "7" * 32 + "_0_0")
    refused(elsewhere, openai.BadRequestError, "input.invalid", "after")
    same(client.conversations.retrieve(conversation.id).id, conversation.id)
    same(client.conversations.delete(conversation.id).deleted, True)
    refused(lambda: client.conversations.retrieve(conversation.id), openai.NotFoundError, "session.not_found")
    given = client.responses.input_items.list(second.id).data
    same([item.content[0].text for item in given], ["who?"])


def threads(client, sessions):
    """A conversation that its client keeps goes on in one session; one that was changed begins another."""
    say = lambda messages: client.chat.completions.create(model="assistant", messages=messages).choices[0].message.content
    before = sessions()
    messages = [{"role": "user", "content": "a thread"}]
    for text in ("first", "second", "third"):
        messages.append({"role": "assistant", "content": say(messages)})
        messages.append({"role": "user", "content": text})
    same(say(messages), "Reply to third.")
    same(len(sessions()) - len(before), 1)
    changed = [{"role": "user", "content": "a thread"}, {"role": "assistant", "content": "no"}, messages[-1]]
    same(say(changed), "Reply to third.")
    same(len(sessions()) - len(before), 2)
    # The same words of another conversation are another conversation.
    same(say(messages[:1]), "Reply to a thread.")
    same(len(sessions()) - len(before), 3)
    # So are those that begin with the same words at the same time.
    with ThreadPoolExecutor(max_workers=4) as pool:
        said = list(pool.map(say, [[{"role": "user", "content": "at once"}]] * 4))
    same((said, len(sessions()) - len(before)), (["Reply to at once."] * 4, 7))


def background(client):
    response = client.responses.create(model="assistant", input="slowly", background=True)
    same((response.status, response.background), ("in_progress", True))
    while response.status == "in_progress":
        time.sleep(0.1)
        response = client.responses.retrieve(response.id)
    same((response.status, response.output_text), ("completed", SLOW))
    # A connection that is dropped in the middle of a stream.
    stream = client.responses.create(model="assistant", input="slowly", background=True, stream=True)
    text, last, id = "", None, None
    for event in stream:
        last, id = event.sequence_number, id or event.response.id
        if event.type == "response.output_text.delta":
            text += event.delta
            if text.endswith("five "):
                break
    stream.close()
    for event in client.responses.retrieve(id, stream=True, starting_after=last):
        if event.type == "response.output_text.delta":
            text += event.delta
    same(text, SLOW)
    same(event.response.output_text, SLOW)


def cancel(client):
    response = client.responses.create(model="assistant", input="forever", background=True)
    same(client.responses.cancel(response.id).status, "cancelled")
    same(client.responses.retrieve(response.id).status, "cancelled")
    done = client.responses.create(model="assistant", input="hello")
    same(client.responses.cancel(done.id).status, "completed")
    # What is said is streamed while the model goes on, and a stream tells that it was cancelled.
    text, id = "", None
    for event in client.responses.create(model="assistant", input="haltingly", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
            if text == "one two ":
                same(client.responses.retrieve(id).status, "in_progress")
                client.responses.cancel(id)
        elif event.type == "response.created":
            id = event.response.id
    same((text, event.type, event.response.status), ("one two ", "response.failed", "cancelled"))
    same(event.response.error.code, "turn.cancelled")


def idempotency(client):
    ask = lambda text: client.responses.create(model="assistant", input=text, extra_headers={"Idempotency-Key": "k1"})
    same(ask("hello").id, ask("hello").id)
    refused(lambda: ask("bye"), openai.ConflictError, "input.key_reused")
    say = lambda: client.chat.completions.create(
        model="assistant",
        messages=[{"role": "user", "content": "hello"}],
        extra_headers={"Idempotency-Key": "k2", "X-Client-Request-Id": "req-7"},
    )
    same(say().id, say().id)
    raw = client.models.with_raw_response.list(extra_headers={"X-Client-Request-Id": "req-7"})
    same(raw.headers["x-request-id"], "req-7")


    # A key is that of a route, and covers the whole request but for how its answer comes.
    keyed = {"extra_headers": {"Idempotency-Key": "k3"}}
    respond = lambda **more: client.responses.create(**{"model": "assistant", "input": "hello", **keyed, **more})
    complete = lambda **more: client.chat.completions.create(
        **{"model": "assistant", "messages": user("hello"), **keyed, **more}
    )
    digits = lambda id: id.replace("resp_", "").replace("chatcmpl-", "")
    response, completion = respond(), complete()
    assert digits(response.id) != digits(completion.id)
    same(list(respond(stream=True))[0].response.id, response.id)
    same(list(complete(stream=True))[0].id, completion.id)
    reused = (openai.ConflictError, "input.key_reused")
    refused(lambda: respond(instructions="Be brief."), *reused)
    refused(lambda: respond(tools=[WEATHER]), *reused)
    refused(lambda: complete(messages=[{"role": "system", "content": "Be brief."}, *user("hello")]), *reused)
    refused(lambda: complete(user="ann"), *reused)


def ends(client):
    """Every end of a turn, whole and streamed."""
    ask = lambda text, **more: client.responses.create(model="assistant", input=text, **more)
    say = lambda text, **more: client.chat.completions.create(model="assistant", messages=user(text), **more)
    for text, status, reason, words in (
        ("refuses", "incomplete", "content_filter", "I will not."),
        ("runs out", "incomplete", "max_output_tokens", "one two"),
    ):
        whole, streamed = ask(text), list(ask(text, stream=True))[-1]
        same(streamed.type, "response.incomplete")
        for response in (whole, streamed.response):
            same((response.status, response.incomplete_details.reason), (status, reason))
            same(response.output_text, words)
    for text, code in (("unauthorized", "model.unauthorized"), ("breaks", "model.cut")):
        whole, streamed = ask(text), list(ask(text, stream=True))[-1]
        same(streamed.type, "response.failed")
        for response in (whole, streamed.response):
            same((response.status, response.error.code, response.incomplete_details), ("failed", code, None))
    for text, reason, words in (("refuses", "content_filter", "I will not."), ("runs out", "length", "one two")):
        choice = say(text).choices[0]
        same((choice.finish_reason, choice.message.content), (reason, words))
        chunks = list(say(text, stream=True))
        same((chunks[-1].choices[0].finish_reason, said(chunks)), (reason, words))
    for text, code in (("unauthorized", "model.unauthorized"), ("breaks", "model.cut")):
        # The status is about the turn, not about the caller: a key that the provider does not take is not the caller's.
        error = refused(lambda: say(text), openai.APIStatusError, code)
        same((error.status_code, error.type), (406, "server_error"))
        turn = error.body["turn"]
        cause = client.responses.retrieve(turn.replace("trn_", "resp_")).error
        same((cause.code, cause.type), (code, "server_error"))
        same(error.body["message"], f"{code}: {cause.message} ({turn})")
        refused(lambda: list(say(text, stream=True)), openai.APIError, code)


def once(base_url, key, sessions):
    """A client that makes requests again by itself does not make turns again."""
    client = openai.OpenAI(base_url=base_url, api_key=key, timeout=60)
    say = lambda text: client.chat.completions.create(model="assistant", messages=user(text))
    before = len(sessions())
    refused(lambda: say("unauthorized, once"), openai.APIStatusError, "model.unauthorized")
    same(len(sessions()) - before, 1)
    with ThreadPoolExecutor(max_workers=1) as pool:
        cancelled = pool.submit(lambda: refused(lambda: say("forever, once"), openai.APIStatusError, "turn.cancelled"))
        named = lambda: [session for session in sessions() if session["title"] == "forever, once"]
        running = lambda: [session["active"] for session in named() if "active" in session]
        while not running():
            time.sleep(0.05)
        client.responses.cancel(running()[0].replace("trn_", "resp_"))
        cancelled.result()
    same(len(sessions()) - before, 2)


def at_once(client, sessions):
    """Who goes on at the same place at the same time does not hear what others say there."""
    before = {session["id"] for session in sessions()}
    fresh = lambda: [session for session in sessions() if session["id"] not in before]
    messages = user("a place")
    answer = client.chat.completions.create(model="assistant", messages=messages).choices[0].message.content
    messages.append({"role": "assistant", "content": answer})
    first = client.responses.create(model="assistant", input="another place")
    say = lambda name: client.chat.completions.create(model="assistant", messages=[*messages, *user(f"slowly, {name}")])
    go_on = lambda name: client.responses.create(model="assistant", input=f"slowly, {name}", previous_response_id=first.id)
    with ThreadPoolExecutor(max_workers=4) as pool:
        same([completion.choices[0].message.content for completion in pool.map(say, "abcd")], [SLOW] * 4)
        # One goes on in the session, and each other one in a session of its own.
        same(len(fresh()), 2 + 3)
        places = {response.conversation.id for response in pool.map(go_on, "abcd")}
    same((len(places), first.conversation.id in places), (4, True))
    same(sorted(session["turns"] for session in fresh()), [1] * 6 + [2] * 2)


def dropped(client):
    """A completion whose connection was dropped is made again under its key, and is the same to the last byte."""
    ask = lambda: client.chat.completions.create(
        model="assistant", messages=user("slowly"), stream=True, extra_headers={"Idempotency-Key": "dropped"}
    )
    stream, heard = ask(), []
    for chunk in stream:
        heard.append(chunk.to_dict())
        if chunk.choices[0].delta.content == "five ":
            break
    stream.close()
    chunks = list(ask())
    same(said(chunks), SLOW)
    same([chunk.to_dict() for chunk in chunks][: len(heard)], heard)
    same([chunk.to_dict() for chunk in ask()], [chunk.to_dict() for chunk in chunks])


def matrix(base_url, key, wrong_key):
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    api = base_url.removesuffix("/openai/v1")
    sessions = lambda: client.get(f"{api}/v1/sessions?limit=500", cast_to=object)["items"]
    models(client)
    errors(client, wrong_key)
    plain(client)
    files(client, sessions)
    streaming(client)
    server_tool(client)
    client_tool(client)
    structured(client)
    conversations(client)
    threads(client, sessions)
    background(client)
    cancel(client)
    idempotency(client)
    ends(client)
    once(base_url, key, sessions)
    at_once(client, sessions)
    dropped(client)


def resume(base_url, key):
    """Reads until the model has said five words, lets the server be killed, and reads on."""
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    text, last, id = "", None, None
    for event in client.responses.create(model="assistant", input="slowly", background=True, stream=True):
        last, id = event.sequence_number, id or event.response.id
        if event.type == "response.output_text.delta":
            text += event.delta
            if text.endswith("five "):
                break
    print("killed?", flush=True)
    sys.stdin.readline()
    for event in client.responses.retrieve(id, stream=True, starting_after=last):
        if event.type == "response.output_text.delta":
            text += event.delta
    same(text, SLOW)
    same((event.type, event.response.output_text), ("response.completed", SLOW))
    same(client.responses.retrieve(id).output_text, SLOW)


def again(base_url, key):
    """A completion whose server was killed is asked for again under its key, and has the same text and the same id."""
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    ask = lambda **more: client.chat.completions.create(
        model="assistant", messages=user("slowly"), extra_headers={"Idempotency-Key": "slow"}, **more
    )
    heard, id = "", None
    try:
        for chunk in ask(stream=True):
            heard, id = heard + (chunk.choices[0].delta.content or ""), chunk.id
            if heard == "one two ":
                print("killed?", flush=True)
                sys.stdin.readline()
    except openai.APIError as error:
        print(f"broken: {type(error).__name__}", file=sys.stderr)
    assert SLOW.startswith(heard) and heard != SLOW, heard
    chunks = list(ask(stream=True))
    same((said(chunks), {chunk.id for chunk in chunks}), (SLOW, {id}))
    whole = ask()
    same((whole.choices[0].message.content, whole.id), (SLOW, id))


def stopped(base_url, key):
    """A stream that the server ends before its time is an error, and no answer that looks whole."""
    client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    completion = client.chat.completions.create(model="assistant", messages=user("haltingly"), stream=True)
    response = client.responses.create(model="assistant", input="haltingly", stream=True)
    heard = ["", ""]
    for chunk in completion:
        heard[0] += chunk.choices[0].delta.content or ""
        if heard[0] == "one two ":
            break
    for event in response:
        heard[1] += event.delta if event.type == "response.output_text.delta" else ""
        if heard[1] == "one two ":
            break
    same(heard, ["one two ", "one two "])
    print("killed?", flush=True)
    sys.stdin.readline()
    for stream in (completion, response):
        try:
            for _ in stream:
                pass
        except openai.APIConnectionError:
            continue
        raise AssertionError("a stream that was cut ended as if it were whole")


if __name__ == "__main__":
    {"matrix": matrix, "resume": resume, "again": again, "stopped": stopped}[sys.argv[1]](*sys.argv[2:])
    print("fine")
