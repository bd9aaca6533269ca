"""Text in and out. A tokeniser belongs to a weight set: these read that of whatever family their node names."""

from walkgraph.graph.catalogue import ANY, Component, Param, StateUse, port
from walkgraph.placement.sizes import TOKENIZER

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="text.tokenizer",
        category="Text",
        description="Turns text into token ids, by default between the begin and the end token.",
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "wrap": Param(type="boolean", default=True, description="Put the begin and the end token around the ids.")
        },
        cost="launch",
        network="walkgraph.models.text.operators:Tokenizer",
        weights=ANY,
        reads=TOKENIZER,
        host=True,
    ),
    Component(
        name="text.begin_answer",
        former=("text.start",),
        category="Text",
        description="The token that begins an answer.",
        outputs=(port("token", "tokens: int[1]"),),
        cost="launch",
        network="walkgraph.models.text.operators:Start",
        weights=ANY,
        reads=TOKENIZER,
        host=True,
    ),
    Component(
        name="text.end_answer",
        former=("text.finish",),
        category="Text",
        description="What an answer ends with: its last token, and the end token where that is another.",
        inputs=(port("token", "tokens: int[1]"),),
        outputs=(port("ids", "tokens: int[n]"),),
        cost="launch",
        network="walkgraph.models.text.operators:Finish",
        weights=ANY,
        reads=TOKENIZER,
        host=True,
    ),
    Component(
        name="text.detokenizer",
        category="Text",
        description="Turns tokens into text as they come; half a character waits, special tokens give none.",
        inputs=(port("token", "tokens: int[n]"),),
        outputs=(port("text", "text: str"),),
        states=(StateUse(slot="tail", kind="tensor"),),
        cost="launch",
        network="walkgraph.models.text.operators:Detokenizer",
        weights=ANY,
        reads=TOKENIZER,
        host=True,
    ),
)
