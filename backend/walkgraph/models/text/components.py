"""Text in and out. A tokenizer belongs to a weight set; these components use the one of their node's weights."""

from walkgraph.checkpoints.known_templates import PUBLISHED, TEMPLATES
from walkgraph.graph.catalogue import ANY, Component, Example, Param, StateUse, port
from walkgraph.graph.declaring import Declarations, boolean, choice, integer, literal
from walkgraph.placement.sizes import TOKENIZER

MOST_SCORED = 20
"""The most likeliest tokens whose log-probabilities a request gets."""

_component = Declarations(
    "text", category="Text", cost="launch", weights=ANY, reads=TOKENIZER, host=True, deterministic=True
)

_string = Declarations("text", category="Text", cost="launch", host=True, deterministic=True, module="string_operators")


def _text(description: str, default: str | None = "") -> Param:
    return Param(type="string", default=default, description=description)


_STRINGS: tuple[Component, ...] = (
    _string(
        "text.template",
        "Writes a text with values in its holes.",
        inputs=(port("value", "text", of="template"),),
        outputs=(port("text", "text: str"),),
        params={
            "template": Param(
                type="string",
                default="{value}",
                long=True,
                gives="holes",
                description="A text with holes: `{topic}` takes a text, `{n: scalar}` a number, `{extra?}` nothing at "
                "times; `{{` and `}}` are braces.",
            )
        },
        examples=(
            Example(
                params={"template": "Write {n: scalar} lines about {topic}."},
                inputs={"n": 2, "topic": "the sea"},
                outputs={"text": "Write 2 lines about the sea."},
            ),
        ),
    ),
    _string(
        "text.join",
        "Joins the texts of a list.",
        inputs=(port("texts", "list of text"),),
        outputs=(port("text", "text: str"),),
        params={"separator": _text("Put between two texts.", "\n")},
        examples=(Example(params={"separator": ", "}, inputs={"texts": ["a", "b"]}, outputs={"text": "a, b"}),),
    ),
    _string(
        "text.split",
        "Splits a text into a list.",
        inputs=(port("text", "text: str"),),
        outputs=(port("texts", "list of text"),),
        params={
            "separator": _text("Where to split; empty: at spaces and line ends.", "\n"),
            "keep_empty": boolean("Keep empty pieces.", default=False),
        },
        examples=(Example(params={"separator": ","}, inputs={"text": "a,b,,c"}, outputs={"texts": ["a", "b", "c"]}),),
    ),
    _string(
        "text.extract",
        "Finds the pieces of a text that match a regular expression, in linear time.",
        inputs=(port("text", "text: str"),),
        outputs=(
            port("text", "text: str", optional=True, description="the first piece; absent if there is none"),
            port("texts", "list of text", description="all pieces"),
            port("found", "flag: bool", description="there is a piece"),
        ),
        params={
            "pattern": Param(
                type="string",
                form="pattern",
                description="A regular expression in RE2's syntax, which has no look-around and no back-references. "
                "It must be a literal.",
            ),
            "group": literal(
                integer("The group that is a piece; 0 is the whole match.", default=0, min=0, max=99), "group"
            ),
        },
        examples=(
            Example(
                params={"pattern": r"(\w+)@(\w+\.\w+)", "group": 2},
                inputs={"text": "ada@example.org, bob@example.com"},
                outputs={"text": "example.org", "texts": ["example.org", "example.com"], "found": True},
            ),
        ),
    ),
    _string(
        "text.replace",
        "Replaces every occurrence of a text, or every match of a regular expression.",
        inputs=(port("text", "text: str"),),
        outputs=(port("text", "text: str"),),
        params={
            "find": literal(_text("The text to replace. It must be a literal.", None), "find"),
            "replacement": literal(_text(r"With a regular expression, `\1` is its first group."), "replacement"),
            "regex": literal(
                boolean("`find` is a regular expression in RE2's syntax. It must be a literal.", default=False)
            ),
        },
        examples=(
            Example(params={"find": "cat", "replacement": "dog"}, inputs={"text": "a cat"}, outputs={"text": "a dog"}),
            Example(
                params={"find": r"(\d+) EUR", "replacement": r"€\1", "regex": True},
                inputs={"text": "12 EUR or 15 EUR"},
                outputs={"text": "€12 or €15"},
            ),
        ),
    ),
    _string(
        "text.trim",
        "Removes characters from the ends of a text, and can cut it to a length.",
        inputs=(port("text", "text: str"),),
        outputs=(port("text", "text: str"),),
        params={
            "sides": choice(("both", "start", "end"), "Where to remove.", default="both"),
            "characters": _text("What to remove, in any order; empty: spaces and line ends."),
            "longest": integer("Cut to so many characters first; 0: any length.", default=0, min=0, max=2**31 - 1),
        },
        examples=(Example(inputs={"text": "  hello\n"}, outputs={"text": "hello"}),),
    ),
    _string(
        "text.similarity",
        "Says how alike two texts are, from 0 to 1: the share of the pieces of a few letters that both have.",
        inputs=(port("a", "text: str"), port("b", "text: str")),
        outputs=(port("similarity", "scalar: float", description="1 for equal texts"),),
        params={
            "letters": integer("Letters of a piece; a shorter text is one piece.", default=3, min=1, max=16),
            "ignore_case": boolean("Take capital and small letters as the same.", default=True),
        },
        examples=(
            Example(inputs={"a": "A red circle", "b": "a red circle"}, outputs={"similarity": 1.0}),
            Example(
                params={"letters": 2},
                inputs={"a": "night", "b": "nacht"},
                outputs={"similarity": 0.25},
                note="One of four pieces, `ht`, is in both.",
            ),
        ),
    ),
)

COMPONENTS: tuple[Component, ...] = (
    *_STRINGS,
    _component(
        "text.count_tokens",
        "Counts the tokens of a text.",
        inputs=(port("text", "text: str"),),
        outputs=(port("count", "scalar: int"),),
        examples=(
            Example(inputs={"text": "hi"}, outputs={"count": 2}, note="With random weights, where a token is a byte."),
        ),
    ),
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
        deterministic=False,
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
        deterministic=False,
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
