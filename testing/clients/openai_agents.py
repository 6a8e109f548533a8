"""The OpenAI Agents SDK for Python, with Responses."""

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, SQLiteSession, function_tool
from pydantic import BaseModel

from harness import ANSWERS, KEY, MODEL, PIXEL, aborts, fails, finish, joined, run, same, weather_in


class Ticket(BaseModel):
    title: str
    urgent: bool


@function_tool
def weather(city: str) -> str:
    """Tells the weather."""
    return weather_in(city)


class Responses:
    def __init__(self, url):
        self.config = RunConfig(model_provider=OpenAIProvider(base_url=f"{url}/openai/v1", api_key=KEY))

    def agent(self, **more):
        return Agent(name="Clerk", instructions="Be kind.", model=MODEL, **more)

    def ask(self, input, session=None, **more):
        run = Runner.run(self.agent(**more), input, session=session, run_config=self.config)
        return finish(run).final_output

    async def stream(self, input, seen):
        result = Runner.run_streamed(self.agent(), input, run_config=self.config)
        pieces = []
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                seen(event.data.delta)
                pieces.append(event.data.delta)
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
        same(self.ask("case structured", output_type=Ticket).model_dump(), ANSWERS.structured)

    def multi_turn(self):
        session = SQLiteSession("ann")
        self.ask("case first turn", session=session)
        same(self.ask("case second turn", session=session), "Still blue.")

    def image(self):
        for address in (f"data:image/png;base64,{PIXEL}", "https://images.example/lamp.png"):
            image = {"type": "input_image", "image_url": address, "detail": "auto"}
            content = [{"type": "input_text", "text": "case image"}, image]
            same(self.ask([{"role": "user", "content": content}]), ANSWERS.image)

    def options(self):
        settings = ModelSettings(temperature=0.4, top_p=0.9, max_tokens=200, parallel_tool_calls=False)
        same(self.ask("case options", model_settings=settings), ANSWERS.options)

    def forced_tool(self):
        settings = ModelSettings(tool_choice="weather")
        same(self.ask("case forced", tools=[weather], model_settings=settings), ANSWERS.tools)

    def abort(self):
        aborts(self)

    def error(self):
        fails(lambda: self.ask("case error"))
        fails(lambda: self.read("case error", lambda _: None))


run("openai-agents", {"responses": Responses})
