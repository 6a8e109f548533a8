"""pydantic-ai with OpenAI and Anthropic."""

import base64

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ImageUrl, ModelRequest, ModelSettings, ToolDefinition
from pydantic_ai.direct import model_request
from pydantic_ai.models import ModelRequestParameters

from harness import ANSWERS, KEY, MODEL, PIXEL, aborts, fails, finish, joined, run, same, weather_in

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Ticket(BaseModel):
    title: str
    urgent: bool


def weather(city: str) -> str:
    """Tells the weather."""
    return weather_in(city)


class Client:
    def __init__(self, url):
        self.url = url

    def agent(self, **more):
        return Agent(self.connect(), **more)

    def ask(self, input, **more):
        return finish(self.agent(**more).run(input)).output

    async def stream(self, input, seen):
        pieces = []
        async with self.agent().run_stream(input) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                seen(piece)
                pieces.append(piece)
        return pieces

    def read(self, input, seen):
        return "".join(finish(self.stream(input, seen)))

    def plain(self):
        same(self.ask("case plain"), ANSWERS.plain)

    def streaming(self):
        same(joined(finish(self.stream("case streaming", lambda _: None))), ANSWERS.streaming)

    def tools(self):
        same(self.ask("case tools", tools=[weather]), ANSWERS.tools)

    def parallel_tools(self):
        same(self.ask("case parallel", tools=[weather]), ANSWERS.parallel_tools)

    def structured(self):
        # Its default is a forced call of the tool `final_result`.
        same(self.ask("case structured by final_result", output_type=Ticket).model_dump(), ANSWERS.structured)

    def multi_turn(self):
        async def talk():
            agent = self.agent(instructions="Be kind.")
            first = await agent.run("case first turn")
            return (await agent.run("case second turn", message_history=first.new_messages())).output

        same(finish(talk()), "Still blue.")

    def image(self):
        image = BinaryContent(base64.b64decode(PIXEL), media_type="image/png")
        for part in (image, ImageUrl("https://images.example/lamp.png")):
            same(self.ask(["case image", part]), ANSWERS.image)

    def options(self):
        settings = ModelSettings(temperature=0.4, top_p=0.9, max_tokens=200, stop_sequences=["END"])
        same(self.ask("case options", model_settings=settings), ANSWERS.options)

    def forced_tool(self):
        # An agent forces only its output; a request forces any tool.
        tool = ToolDefinition(name="weather", description="Tells the weather.", parameters_json_schema=PARAMETERS)
        prompt = [ModelRequest.user_text_prompt("case forced")]
        parameters = ModelRequestParameters(function_tools=[tool])
        settings = ModelSettings(tool_choice=["weather"])
        request = model_request(
            self.connect(), prompt, model_settings=settings, model_request_parameters=parameters
        )
        same([call.tool_name for call in finish(request).tool_calls], ["weather"])

    def abort(self):
        aborts(self)

    def error(self):
        fails(lambda: self.ask("case error"))
        fails(lambda: self.read("case error", lambda _: None))


class Chat(Client):
    def connect(self):
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{self.url}/openai/v1", api_key=KEY))


class Responses(Client):
    def connect(self):
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=f"{self.url}/openai/v1", api_key=KEY))


class Messages(Client):
    def connect(self):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(MODEL, provider=AnthropicProvider(base_url=f"{self.url}/anthropic", api_key=KEY))


run("pydantic-ai-slim", {"chat": Chat, "responses": Responses, "messages": Messages})
