"""The official Python client of OpenAI, with Responses and with Chat Completions."""

import json

import openai
from pydantic import BaseModel

from harness import ANSWERS, KEY, MODEL, PIXEL, aborts, fails, joined, run, same, weather_in

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
IMAGES = [f"data:image/png;base64,{PIXEL}", "https://images.example/lamp.png"]


class Ticket(BaseModel):
    title: str
    urgent: bool


def user(content):
    return {"role": "user", "content": content}


class Responses:
    tool = {"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": PARAMETERS}

    def __init__(self, url):
        self.client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=KEY)

    def create(self, input, **more):
        return self.client.responses.create(model=MODEL, input=input, **more)

    def ask(self, input, **more):
        response = self.create(input, **more)
        if response.status != "completed":
            raise RuntimeError(f"{response.status}: {response.error}")
        return response.output_text

    def read(self, input, seen):
        text = ""
        for event in self.create(input, stream=True):
            if event.type == "response.output_text.delta":
                seen(event.delta)
                text += event.delta
            if event.type == "response.failed":
                raise RuntimeError(f"failed: {event.response.error}")
        return text

    def loop(self, input, **more):
        response = self.create(input, tools=[self.tool], **more)
        while calls := [item for item in response.output if item.type == "function_call"]:
            results = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": weather_in(**json.loads(call.arguments)),
                }
                for call in calls
            ]
            response = self.create(results, tools=[self.tool], previous_response_id=response.id)
        return response.output_text

    def plain(self):
        same(self.ask("case plain"), ANSWERS.plain)

    def streaming(self):
        events = self.create("case streaming", stream=True)
        same(joined(event.delta for event in events if event.type == "response.output_text.delta"), ANSWERS.streaming)

    def tools(self):
        same(self.loop("case tools"), ANSWERS.tools)

    def parallel_tools(self):
        same(self.loop("case parallel"), ANSWERS.parallel_tools)

    def structured(self):
        response = self.client.responses.parse(model=MODEL, input="case structured", text_format=Ticket)
        same(response.output_parsed.model_dump(), ANSWERS.structured)

    def multi_turn(self):
        first = self.create("case first turn")
        same(self.ask("case second turn", previous_response_id=first.id), "Still blue.")

    def image(self):
        for address in IMAGES:
            content = [{"type": "input_text", "text": "case image"}, {"type": "input_image", "image_url": address}]
            same(self.ask([user(content)]), ANSWERS.image)

    def options(self):
        options = {"temperature": 0.4, "top_p": 0.9, "max_output_tokens": 200, "reasoning": {"effort": "low"}}
        same(self.ask("case options", metadata={"team": "a"}, **options), ANSWERS.options)

    def forced_tool(self):
        same(self.loop("case forced", tool_choice={"type": "function", "name": "weather"}), ANSWERS.tools)

    def abort(self):
        aborts(self)

    def error(self):
        fails(lambda: self.ask("case error"))
        fails(lambda: self.read("case error", lambda _: None))


class Chat:
    tool = {
        "type": "function",
        "function": {"name": "weather", "description": "Tells the weather.", "parameters": PARAMETERS},
    }

    def __init__(self, url):
        self.client = openai.OpenAI(base_url=f"{url}/openai/v1", api_key=KEY)

    def say(self, messages, **more):
        completion = self.client.chat.completions.create(model=MODEL, messages=messages, **more)
        return completion.choices[0].message

    def ask(self, text):
        return self.say([user(text)]).content

    def pieces(self, text):
        for chunk in self.client.chat.completions.create(model=MODEL, messages=[user(text)], stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    def read(self, text, seen):
        whole = ""
        for piece in self.pieces(text):
            seen(piece)
            whole += piece
        return whole

    def loop(self, text, **more):
        messages = [user(text)]
        message = self.say(messages, tools=[self.tool], **more)
        while message.tool_calls:
            messages.append(message)
            for call in message.tool_calls:
                content = weather_in(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
            message = self.say(messages, tools=[self.tool])
        return message.content

    def plain(self):
        same(self.ask("case plain"), ANSWERS.plain)

    def streaming(self):
        same(joined(self.pieces("case streaming")), ANSWERS.streaming)

    def tools(self):
        same(self.loop("case tools"), ANSWERS.tools)

    def parallel_tools(self):
        same(self.loop("case parallel"), ANSWERS.parallel_tools)

    def structured(self):
        completion = self.client.chat.completions.parse(model=MODEL, messages=[user("case structured")], response_format=Ticket)
        same(completion.choices[0].message.parsed.model_dump(), ANSWERS.structured)

    def multi_turn(self):
        messages = [{"role": "system", "content": "Be kind."}, user("case first turn")]
        messages += [self.say(messages), user("case second turn")]
        same(self.say(messages).content, "Still blue.")

    def image(self):
        for address in IMAGES:
            content = [{"type": "text", "text": "case image"}, {"type": "image_url", "image_url": {"url": address}}]
            same(self.say([user(content)]).content, ANSWERS.image)

    def options(self):
        options = {"temperature": 0.4, "top_p": 0.9, "max_completion_tokens": 200, "stop": ["END"], "seed": 7}
        more = {"presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"7": 1}, "user": "ann"}
        same(self.say([user("case options")], **options, **more).content, ANSWERS.options)

    def forced_tool(self):
        choice = {"type": "function", "function": {"name": "weather"}}
        same(self.loop("case forced", tool_choice=choice), ANSWERS.tools)

    def abort(self):
        aborts(self)

    def error(self):
        fails(lambda: self.ask("case error"))
        fails(lambda: self.read("case error", lambda _: None))


run("openai", {"responses": Responses, "chat": Chat})
