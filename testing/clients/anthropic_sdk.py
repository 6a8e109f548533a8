"""The official Python client of Anthropic."""

import anthropic
from pydantic import BaseModel

from harness import ANSWERS, KEY, MODEL, PIXEL, aborts, fails, joined, run, same, weather_in

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "weather", "description": "Tells the weather.", "input_schema": SCHEMA}
SOURCES = [
    {"type": "base64", "media_type": "image/png", "data": PIXEL},
    {"type": "url", "url": "https://images.example/lamp.png"},
]


class Ticket(BaseModel):
    title: str
    urgent: bool


def user(content):
    return {"role": "user", "content": content}


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


class Messages:
    def __init__(self, url):
        self.client = anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=KEY)

    def create(self, messages, **more):
        return self.client.messages.create(**{"model": MODEL, "max_tokens": 1024, "messages": messages, **more})

    def ask(self, text):
        return text_of(self.create([user(text)]))

    def pieces(self, text):
        with self.client.messages.stream(model=MODEL, max_tokens=1024, messages=[user(text)]) as stream:
            yield from stream.text_stream

    def read(self, text, seen):
        whole = ""
        for piece in self.pieces(text):
            seen(piece)
            whole += piece
        return whole

    def loop(self, text, **more):
        messages = [user(text)]
        message = self.create(messages, tools=[TOOL], **more)
        while calls := [block for block in message.content if block.type == "tool_use"]:
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": weather_in(**call.input)} for call in calls
            ]
            messages += [{"role": "assistant", "content": message.content}, user(results)]
            message = self.create(messages, tools=[TOOL])
        return text_of(message)

    def plain(self):
        same(self.ask("case plain"), ANSWERS.plain)

    def streaming(self):
        same(joined(self.pieces("case streaming")), ANSWERS.streaming)

    def tools(self):
        same(self.loop("case tools"), ANSWERS.tools)

    def parallel_tools(self):
        same(self.loop("case parallel"), ANSWERS.parallel_tools)

    def structured(self):
        message = self.client.messages.parse(
            model=MODEL, max_tokens=1024, messages=[user("case structured")], output_format=Ticket
        )
        same(message.parsed_output.model_dump(), ANSWERS.structured)

    def multi_turn(self):
        messages = [user("case first turn")]
        first = self.create(messages, system="Be kind.")
        messages += [{"role": "assistant", "content": first.content}, user("case second turn")]
        same(text_of(self.create(messages, system="Be kind.")), "Still blue.")

    def image(self):
        for source in SOURCES:
            content = [{"type": "image", "source": source}, {"type": "text", "text": "case image"}]
            same(text_of(self.create([user(content)])), ANSWERS.image)

    def options(self):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        options = {"max_tokens": 2048, "stop_sequences": ["END"], "metadata": {"user_id": "ann"}, "thinking": thinking}
        same(text_of(self.create([user("case options")], **options)), ANSWERS.options)
        count = self.client.messages.count_tokens(model=MODEL, messages=[user("case plain")])
        same(count.input_tokens > 0, True)

    def forced_tool(self):
        same(self.loop("case forced", tool_choice={"type": "tool", "name": "weather"}), ANSWERS.tools)

    def abort(self):
        aborts(self)

    def error(self):
        fails(lambda: self.ask("case error"))
        fails(lambda: self.read("case error", lambda _: None))


run("anthropic", {"messages": Messages})
