"""Training data of the arm's policy: prompts as they are written, moments, and the expert's answers."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from walkgraph.models.reach import scene as world
from walkgraph.models.reach.words import FORMS
from walkgraph.starters.reach.config import config
from walkgraph.starters.reach.data import Prompts, digitised, examples
from walkgraph.starters.reach.tokens import BOS, FILE, LEVELS, WORDS, make
from walkgraph.starters.reach.train import Trained, fresh

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FILE))


@pytest.fixture(scope="module")
def prompts(tokenizer: Tokenizer) -> Prompts:
    return Prompts(tokenizer, torch.device("cpu"))


def test_the_shipped_tokenizer_is_the_one_that_is_made(tokenizer: Tokenizer) -> None:
    assert tokenizer.to_str() == make().to_str()
    assert tokenizer.token_to_id("<bos>") == BOS == config().bos
    assert tokenizer.get_vocab_size() <= config().vocab


@pytest.mark.parametrize("word", [*WORDS[:-LEVELS], "0", "9", "37", "128", "255"])
def test_every_word_is_one_token(tokenizer: Tokenizer, word: str) -> None:
    assert len(tokenizer.encode(f" {word}").ids) == 1


def test_any_text_comes_back(tokenizer: Tokenizer) -> None:
    text = "hand me the über-red ball #7, 999 times"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_prompts_from_tables_are_the_written_ones(tokenizer: Tokenizer, prompts: Prompts) -> None:
    state = world.drawn(len(FORMS), torch.Generator().manual_seed(1))
    ids, lengths, named = prompts(torch.arange(len(FORMS)), state)
    levels = digitised(state[:, :2]).tolist()
    for row, form in enumerate(FORMS):
        colour = world.COLOURS[int(world.named(state[row])[0])]
        digits = " ".join(map(str, levels[row]))
        text = f"Task: {form.format(colour)}, State: {digits};\nAction: "
        assert ids[row, : lengths[row]].tolist() == [BOS, *tokenizer.encode(text).ids]
        assert tokenizer.decode([int(ids[row, named[row]])]).strip() == colour


def test_states_are_digitised_as_published() -> None:
    low, high = np.array(world.LOW), np.array(world.HIGH)
    joints = torch.rand(500, 2, generator=torch.Generator().manual_seed(2)) * torch.tensor(high - low) + torch.tensor(
        low
    )
    scaled = (joints.numpy() - low) / (high - low + 1e-6) * 2 - 1
    published = np.digitize(scaled, np.linspace(-1, 1, LEVELS + 1)[:-1]) - 1
    assert (published == digitised(joints.float()).numpy()).mean() > 0.995
    assert np.abs(published - digitised(joints.float()).numpy()).max() <= 1


def test_examples_are_of_one_seed_and_of_the_expert(prompts: Prompts) -> None:
    some = examples(16, prompts, torch.Generator().manual_seed(4))
    again = examples(16, prompts, torch.Generator().manual_seed(4))
    assert torch.equal(some.pixels, again.pixels)
    assert some.pixels.shape == (16, 3, 64, 64)
    assert some.actions.shape == (16, world.HORIZON, 2)
    assert float(some.actions.abs().max()) <= 1 + 1e-6
    assert torch.equal(some.ids, again.ids)


def test_moments_are_more_often_near_to_the_target(prompts: Prompts) -> None:
    moments = examples(400, prompts, torch.Generator().manual_seed(5))
    begins = world.expert(world.drawn(400, torch.Generator().manual_seed(5)))
    assert moments.actions.abs().mean() < 0.9 * begins.abs().mean() / world.SPEED


def test_numbers_near_each_other_begin_alike(tokenizer: Tokenizer) -> None:
    table = fresh(tokenizer).language.embed_tokens.weight
    rows = table[[tokenizer.encode(f" {number}").ids[0] for number in (100, 101, 180)]]
    near, far = (torch.cosine_similarity(rows[0], row, dim=0) for row in rows[1:])
    assert near > 0.9 > far


def test_both_losses_fall_along_their_gradient(tokenizer: Tokenizer, prompts: Prompts) -> None:
    trained = Trained(fresh(tokenizer), noises=1)
    given = examples(4, prompts, torch.Generator().manual_seed(6))
    losses: list[tuple[float, float]] = []
    for _ in range(4):
        torch.manual_seed(0)
        flow, aux = trained(given)
        losses.append((flow.item(), aux.item()))
        trained.zero_grad()
        (flow + aux).backward()
        with torch.no_grad():
            for parameter in trained.parameters():
                assert parameter.grad is not None
                parameter -= 0.002 * parameter.grad
    assert losses[-1][0] < losses[0][0]
    assert losses[-1][1] < losses[0][1]
