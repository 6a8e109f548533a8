"""LangChain for Python with OpenAI and Anthropic. Its agents are LangGraph graphs."""

import sys

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import HumanMessage
from pydantic import BaseModel

from harness import ANSWERS, KEY, MODEL, PIXEL, aborts, fails, joined, run, same, weather_in


class Ticket(BaseModel):
    """A ticket."""

    title: str
    urgent: bool


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return weather_in(city)


class Client:
    structured_input = "case structured"

    def __init__(self, url):
        self.url = url
        self.model = self.connect()
        self.agent = create_agent(self.model, tools=[weather])

    def ask(self, text):
        return self.model.invoke(text).text

    def pieces(self, text):
        return (chunk.text for chunk in self.model.stream(text))

    def read(self, text, seen):
        whole = ""
        for piece in self.pieces(text):
            if piece:
                seen(piece)
            whole += piece
        return whole

    def run_agent(self, text):
        return self.agent.invoke({"messages": [HumanMessage(text)]})["messages"][-1].text

    def plain(self):
        same(self.ask("case plain"), ANSWERS.plain)

    def streaming(self):
        same(joined(self.pieces("case streaming")), ANSWERS.streaming)

    def tools(self):
        same(self.run_agent("case tools"), ANSWERS.tools)

    def parallel_tools(self):
        same(self.run_agent("case parallel"), ANSWERS.parallel_tools)

    def structured(self):
        ticket = self.model.with_structured_output(Ticket).invoke(self.structured_input)
        same(ticket.model_dump(), ANSWERS.structured)
        agent = create_agent(self.model, tools=[], response_format=Ticket)
        state = agent.invoke({"messages": [HumanMessage("case structured by Ticket")]})
        same(state["structured_response"].model_dump(), ANSWERS.structured)

    def multi_turn(self):
        messages = [HumanMessage("case first turn")]
        messages += [self.model.invoke(messages), HumanMessage("case second turn")]
        same(self.model.invoke(messages).text, "Still blue.")

    def image(self):
        image = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
        address = {"type": "image", "url": "https://images.example/lamp.png"}
        for part in (image, address):
            content = [{"type": "text", "text": "case image"}, part]
            same(self.model.invoke([HumanMessage(content=content)]).text, ANSWERS.image)

    def options(self):
        same(self.connect(**self.some_options).invoke("case options").text, ANSWERS.options)

    def forced_tool(self):
        reply = self.model.bind_tools([weather], tool_choice="weather").invoke("case forced")
        same([call["name"] for call in reply.tool_calls], ["weather"])

    def abort(self):
        aborts(self)

    def error(self):
        fails(lambda: self.ask("case error"))
        fails(lambda: self.read("case error", lambda _: None))


class Chat(Client):
    some_options = {"temperature": 0.4, "top_p": 0.9, "max_tokens": 200, "stop": ["END"], "seed": 7}

    def connect(self, **more):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=MODEL, base_url=f"{self.url}/openai/v1", api_key=KEY, **more)


class Messages(Client):
    some_options = {"temperature": 0.4, "max_tokens": 200, "stop": ["END"]}
    # Its default is a forced call of a tool with the name of the class.
    structured_input = "case structured by Ticket"

    def connect(self, **more):
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=MODEL, base_url=f"{self.url}/anthropic", api_key=KEY, **more)


run("langchain-openai" if sys.argv[1] == "chat" else "langchain-anthropic", {"chat": Chat, "messages": Messages})
