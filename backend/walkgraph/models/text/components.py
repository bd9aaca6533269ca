"""Text in and out. A tokenizer belongs to a weight set; these components use the one of their node's weights."""

from walkgraph.checkpoints.known_templates import PUBLISHED, TEMPLATES
from walkgraph.graph.catalogue import ANY, Component, Example, Param, StateUse, port
from walkgraph.graph.declaring import Declarations, boolean, integer
from walkgraph.placement.sizes import TOKENIZER

MOST_SCORED = 20
"""The most likeliest tokens whose log-probabilities a request gets."""

_component = Declarations("text", category="Text", cost="launch", weights=ANY, reads=TOKENIZER, host=True)

COMPONENTS: tuple[Component, ...] = (
    _component(
        "text.tokenizer",
        "Turns text into token ids, by default between the begin and the end token.",
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={"wrap": boolean("Put the begin and end tokens around the ids.", default=True)},
        examples=(
            Example(
                params={"wrap": False},
                inputs={"text": "hi"},
                outputs={"ids": [104, 105]},
                note="With random weights, where a token is a byte.",
            ),
        ),
    ),
    _component(
        "text.chat_prompt",
        "Writes a conversation as the prompt that a language model was trained with, up to where its answer begins.",
        inputs=(port("messages", "messages"),),
        outputs=(
            port("ids", "tokens: int[n]"),
            port("text", "text: str", description="the prompt as text"),
        ),
        examples=(
            Example(
                params={"template": "chatml"},
                inputs={"messages": "a turn of the user: hi"},
                outputs={
                    "ids": "the tokens of this text",
                    "text": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
                },
            ),
        ),
        params={
            "template": Param(
                type="string",
                default=PUBLISHED,
                choices=(PUBLISHED, *TEMPLATES),
                description="The chat template; `published` is that of the weights' folder.",
            ),
            "thinking": boolean("Let the model think before it answers, where its template knows that.", default=True),
        },
    ),
    _component(
        "text.logprobs",
        "Log-probabilities of a token and of the likeliest ones, by the model's logits.",
        inputs=(port("token", "tokens: int[1]"), port("logits", "tensor: float[v]")),
        outputs=(port("scored", "tensor: float[m, 2]", description="each a token and its log-probability"),),
        weights=None,
        reads=None,
        host=False,
        resident=True,
        examples=(
            Example(
                inputs={"token": [1], "logits": [0.0, 1.0, 2.0]},
                outputs={"scored": [[1.0, -1.4076], [2.0, -0.4076], [1.0, -1.4076], [0.0, -2.4076]]},
            ),
        ),
    ),
    _component(
        "text.begin_answer",
        "Outputs the token that begins an answer.",
        former=("text.start",),
        outputs=(port("token", "tokens: int[1]"),),
        examples=(Example(outputs={"token": [256]}, note="With random weights, where 256 is the begin token."),),
    ),
    _component(
        "text.end_answer",
        "Outputs the end of an answer: its last token, then the end token unless they are the same.",
        former=("text.finish",),
        inputs=(port("token", "tokens: int[1]"),),
        outputs=(port("ids", "tokens: int[n]"),),
        examples=(
            Example(
                inputs={"token": [104]},
                outputs={"ids": [104, 257]},
                note="With random weights, where 257 is the end token.",
            ),
        ),
    ),
    _component(
        "text.detokenizer",
        "Turns tokens into text as they come. Incomplete characters are held back; special tokens give no text.",
        inputs=(
            port("token", "tokens: int[n]"),
            port("scored", "tensor: float[m, 2]", optional=True, description="tokens and their log-probabilities"),
        ),
        outputs=(
            port("text", "text: str"),
            port("logprobs", "text: str", optional=True, description="`scored` as a line of JSON"),
        ),
        params={
            "top_logprobs": integer("Likeliest tokens in a line of `logprobs`.", default=0, min=0, max=MOST_SCORED)
        },
        states=(StateUse(slot="tail", kind="tensor"),),
        examples=(
            Example(
                inputs={"token": [104, 105]},
                outputs={"text": "hi"},
                note="With random weights, where a token is a byte.",
            ),
        ),
    ),
)
