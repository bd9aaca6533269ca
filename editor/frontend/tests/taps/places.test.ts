import { beforeEach, describe, expect, it } from "vitest";
import type { GraphDocument } from "../../src/document/types";
import { cards, closeCard, moveCard, openCard, pinCard } from "../../src/taps/cards";
import { standing, standingAt } from "../../src/taps/standing";
import { edgesOf, placeOf, placeOfEdge } from "../../src/taps/places";

const graph = {
  walks: {
    draw: {
      body: [{ loop: "steps", times: "4", body: ["dit"] }, "vae"],
      edges: [
        ["@in.noise", "dit.latents"],
        ["dit.latents", "dit.latents"],
        ["dit.latents", "vae.latents"],
        ["@loop.index", "dit.step"],
        ["vae.pixels", "@out.image"],
      ],
      results: { last: { from: "dit.latents" } },
    },
  },
} as unknown as GraphDocument;

describe("places", () => {
  it("are outputs of uses and inputs of the Walk", () => {
    expect(placeOf("draw", "dit.latents")).toEqual({ walk: "draw", source: "dit.latents" });
    expect(placeOf("draw", "@in.noise")).toEqual({ walk: "draw", source: "@in.noise" });
    expect([placeOf("draw", "@loop.index"), placeOf("draw", "@stream.x"), placeOf("draw", "dit")]).toEqual([
      null,
      null,
      null,
    ]);
    expect(placeOf(null, "dit.latents")).toBeNull();
  });

  it("are found by the edge that is selected, and find all their edges", () => {
    const of = (id: string) => placeOfEdge(graph, "draw", id)?.source ?? null;
    expect(["edge:0", "edge:4", "result:last", "edge:3", "edge:9", "use:dit", "sink:x"].map(of)).toEqual([
      "@in.noise",
      "vae.pixels",
      "dit.latents",
      null,
      null,
      null,
      null,
    ]);
    expect(placeOfEdge(graph, "gone", "edge:0")).toBeNull();
    expect(edgesOf(graph, { walk: "draw", source: "dit.latents" })).toEqual(["edge:1"]);
    expect(edgesOf(graph, { walk: "gone", source: "dit.latents" })).toEqual([]);
  });
});

describe("an edge out of a loop", () => {
  it("is a place of its own: what leaves is the last value, not every iteration's", () => {
    const exit = { walk: "draw", source: "dit.latents", to: "vae.latents" };
    expect(placeOfEdge(graph, "draw", "edge:2")).toEqual(exit);
    expect(placeOfEdge(graph, "draw", "result:last")).toEqual({ ...exit, to: "@result.last" });
    expect(placeOfEdge(graph, "draw", "edge:1")).toEqual({ walk: "draw", source: "dit.latents" });
    expect(edgesOf(graph, exit)).toEqual(["edge:2"]);
  });
});

describe("cards", () => {
  beforeEach(() => cards.setState({}, true));

  it("open once, beside each other, and stay where they are moved or pinned", () => {
    openCard("a");
    openCard("b");
    const [first, second] = [cards.getState()["a"]!, cards.getState()["b"]!];
    expect(first.at).not.toEqual(second.at);
    moveCard("a", [5, 6]);
    openCard("a");
    expect(cards.getState()["a"]).toEqual({ at: [5, 6], pinned: false, moved: true });
    pinCard("a", true, [100, 200]);
    expect(cards.getState()["a"]).toEqual({ at: [100, 200], pinned: true });
    moveCard("gone", [0, 0]);
    pinCard("gone", true, [0, 0]);
    closeCard("a");
    expect(Object.keys(cards.getState())).toEqual(["b"]);
  });

  it("stand by their place, in sight while it is, and where they are pinned whatever is shown", () => {
    const board = [1000, 600] as const;
    const card = { at: [44, 28], pinned: false } as const;
    expect(standing(card, [100, 100], board)).toEqual([144, 128]);
    expect(standing(card, [990, 590], board)).toEqual([738, 480]);
    expect(standing(card, [-300, 100], board)).toEqual([-256, 128]);
    const below = { x: 120, y: 110, w: 200, h: 100 };
    const [x, y] = standing(card, [100, 100], board, [below]);
    expect(x >= 320 || x + 262 <= 120 || y >= 210 || y + 250 <= 110).toBe(true);
    expect(standing({ ...card, moved: true }, [100, 100], board, [below])).toEqual([144, 128]);
    expect(standing(card, [100, 100], board, [{ x: 0, y: 0, w: 1000, h: 600 }])).toEqual([144, 128]);
    const pinned = { at: [500, 900], pinned: true } as const;
    expect([standing(pinned, null, board), standing(pinned, [5, 5], board)]).toEqual([
      [500, 480],
      [500, 480],
    ]);
    expect(standing({ ...card, at: standingAt([300, 200], [100, 100], false) }, [100, 100], board)).toEqual([
      300, 200,
    ]);
    expect(standing({ at: standingAt([300, 200], [9, 9], true), pinned: true }, [9, 9], board)).toEqual([300, 200]);
  });
});
