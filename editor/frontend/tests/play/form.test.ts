import { describe, expect, it } from "vitest";
import {
  canOrder,
  exampleOf,
  fitted,
  fresh,
  givenOf,
  judge,
  labelOf,
  listedParams,
  mimeOf,
  newPart,
  paramFault,
  pictureInput,
  request,
  sliderOf,
  withPicture,
} from "../../src/play/model/form";
import type { Given, InputShown, ParamShown } from "../../src/play/model/types";
import { EDIT, PNG } from "./tasks";

it("fills in the defaults of inputs, which may be left out", () => {
  const declared = { many: false, optional: false, description: "Such as: `a cat`" };
  const inputs = {
    style: { ...declared, modality: "text", default: "in oil\nor ink" },
    state: { ...declared, modality: "state", default: [0.5, -1] },
    subject: { ...declared, modality: "text", default: null },
  };
  const task = { ...EDIT, inputs, params: {} };
  const given = fresh(task);
  expect(given.parts.map((part) => part.text)).toEqual(["in oil\nor ink", "0.5 -1", "a cat"]);
  const emptied = { ...given, parts: given.parts.map((part) => ({ ...part, text: "" })) };
  expect(Object.keys(judge(task, emptied))).toEqual(["input:subject"]);
  expect(request(task, emptied)).toEqual({ inputs: {}, params: {} });
});

const media = (name: string) => ({ mime: "image/png", data: PNG, name });
const input = (name: string) => EDIT.inputs[name] as InputShown;

function filled(change: Partial<Given> = {}): Given {
  const parts = [
    newPart("image", input("image"), "", media("a.png")),
    newPart("instruction", input("instruction"), "blue"),
  ];
  return { parts, ordered: false, params: { width: 64 }, seed: { text: "", locked: false }, ...change };
}

describe("a fresh form", () => {
  it("has a place for each needed input, texts with their example", () => {
    const given = fresh(EDIT);
    expect(given.parts.map((part) => [part.input, part.text])).toEqual([
      ["image", ""],
      ["instruction", "make it blue"],
    ]);
    expect(new Set(given.parts.map((part) => part.key)).size).toBe(2);
  });

  it("watches previews that are silent by default, where so many steps may be asked for", () => {
    const every = { ...(EDIT.params["steps"] as ParamShown), default: 0, min: 0 };
    const params = (change: Partial<ParamShown>, outputs = EDIT.outputs) =>
      fresh({ ...EDIT, outputs, params: { preview_every: { ...every, ...change } } }).params;
    expect(params({})).toEqual({ preview_every: 2 });
    expect(params({ default: 5 })).toEqual({});
    expect(params({ max: 1 })).toEqual({});
    expect(params({ type: "boolean", default: false })).toEqual({});
    expect(params({}, ["image"])).toEqual({});
    expect(fresh(EDIT).params).toEqual({});
  });

  it("lists the parameter of previews first, and leaves the seed to its own field", () => {
    const { steps } = EDIT.params as { steps: ParamShown };
    const task = { ...EDIT, params: { steps, seed: steps, scale: steps, preview_every: steps } };
    const names = (outputs: string[]) => listedParams({ ...task, outputs }).map(([name]) => name);
    expect(names(["image", "preview"])).toEqual(["preview_every", "steps", "scale"]);
    expect(names(["image"])).toEqual(["steps", "scale", "preview_every"]);
  });

  it("takes backticks for an example only where a colon says so", () => {
    expect(exampleOf("What to say; `<laugh>` is a sound.")).toBe("");
    expect(labelOf("max_tokens")).toBe("Max tokens");
  });

  it("keeps what still fits when the task has changed", () => {
    const { image: _, ...inputs } = EDIT.inputs;
    const { width: __, ...params } = EDIT.params;
    const found = fitted({ ...EDIT, inputs, params }, filled({ ordered: true }));
    expect(found.parts.map((part) => part.input)).toEqual(["instruction"]);
    expect(found.params).toEqual({});
    expect(canOrder(EDIT)).toBe(true);
    expect(fitted(EDIT, { ...filled(), parts: [] }).parts.map((part) => part.input)).toEqual([
      "image",
      "instruction",
    ]);
  });
});

describe("a picture handed on", () => {
  it("takes the place of those that were given", () => {
    const more = newPart("image", input("image"), "", media("b.png"));
    const before = filled({ parts: [newPart("instruction", input("instruction"), "blue"), ...filled().parts, more] });
    const parts = withPicture(EDIT, before, media("c.png")).parts;
    expect(parts.map((part) => part.media?.name ?? part.text)).toEqual(["blue", "c.png", "blue"]);
    expect(withPicture(EDIT, { ...before, parts: [] }, media("c.png")).parts).toHaveLength(1);
  });

  it("changes nothing where no picture is taken", () => {
    const { image: _, ...inputs } = EDIT.inputs;
    expect(pictureInput({ ...EDIT, inputs })).toBeNull();
    const given = filled();
    expect(withPicture({ ...EDIT, inputs }, given, media("c.png"))).toBe(given);
  });
});

describe("what is wrong", () => {
  it("is nothing in a filled form", () => {
    expect(judge(EDIT, filled())).toEqual({});
  });

  it("is what is missing, said as what is needed", () => {
    expect(judge(EDIT, fresh(EDIT))).toEqual({
      "input:image": "a picture is needed",
      "param:width": "type a number",
    });
    expect(judge(EDIT, filled({ parts: [] }))["input:instruction"]).toBe("a text is needed");
  });

  it("is a second value where one is taken, and numbers that are none", () => {
    const pose = (text: string) => newPart("pose", input("pose"), text);
    const given = filled();
    expect(judge(EDIT, { ...given, parts: [...given.parts, pose("1"), pose("2")] })).toHaveProperty("input:pose");
    const broken = pose("1 two");
    expect(judge(EDIT, { ...given, parts: [...given.parts, broken] })).toHaveProperty([`part:${broken.key}`]);
    expect(judge(EDIT, { ...given, parts: [...given.parts, pose(" ")] })).toEqual({});
  });

  it.each<[string, unknown, string | null]>([
    ["steps", 1, "at least 2"],
    ["steps", 201, "at most 200"],
    ["steps", 2.5, "type a whole number"],
    ["steps", "3x", "type a number"],
    ["steps", Number.NaN, "type a number"],
    ["steps", 2, null],
    ["scale", 1, null],
    ["renorm", "other", "choose one of the list"],
    ["think", "yes", "choose yes or no"],
    ["system", "", null],
  ])("tells of %s = %s: %s", (name, value, fault) => {
    expect(paramFault(EDIT.params[name] as ParamShown, value as never)).toBe(fault);
  });

  it("is a seed that is none, once it is locked", () => {
    const given = (text: string, locked: boolean) => judge(EDIT, filled({ seed: { text, locked } }))["seed"];
    expect(given("-1", true)).toBeDefined();
    expect(given("9007199254740993", true)).toBeDefined();
    expect(given("9007199254740991", true)).toBeUndefined();
    expect(given("nonsense", false)).toBeUndefined();
  });

  it("is more than the service takes", () => {
    const many = Array.from({ length: 17 }, () => newPart("image", input("image"), "", media("a.png")));
    const given = filled();
    expect(judge(EDIT, { ...given, parts: [...given.parts, ...many] })["all"]).toMatch(/16/);
  });
});

describe("the request", () => {
  it("has single values bare and leaves out defaults, empty values and an unlocked seed", () => {
    const given = filled({ params: { width: 64, steps: 50, scale: 0.25 }, seed: { text: "7", locked: false } });
    given.parts.push(newPart("pose", input("pose"), ""));
    expect(request(EDIT, given)).toEqual({
      inputs: { image: PNG, instruction: "blue" },
      params: { width: 64, scale: 0.25 },
    });
  });

  it("has several values in their order, numbers as nested lists, and a locked seed", () => {
    const given = filled({ seed: { text: "7", locked: true } });
    given.parts.push(
      newPart("instruction", input("instruction"), "and round"),
      newPart("pose", input("pose"), "1 2\n3 4"),
    );
    expect(request(EDIT, given)).toEqual({
      inputs: {
        image: PNG,
        instruction: ["blue", "and round"],
        pose: {
          type: "state",
          data: [
            [1, 2],
            [3, 4],
          ],
        },
      },
      params: { width: 64, seed: 7 },
    });
  });

  it("has parts in an order of one's own", () => {
    const given = filled({ ordered: true });
    given.parts.reverse();
    expect(request(EDIT, given).inputs).toEqual({
      parts: [
        { type: "text", text: "blue" },
        { type: "image", mime: "image/png", data: PNG },
      ],
    });
  });

  it("comes back as the form that made it", () => {
    for (const ordered of [false, true]) {
      const given = filled({ ordered, seed: { text: "7", locked: true } });
      given.parts.push(newPart("instruction", input("instruction"), "and round"));
      const body = request(EDIT, given);
      expect(request(EDIT, givenOf(EDIT, body))).toEqual(body);
    }
    const tensor = { inputs: { image: PNG, instruction: "x", pose: [1, 2] }, params: { width: 1 } };
    expect(givenOf(EDIT, tensor).parts.at(-1)?.text).toBe("[1,2]");
  });

  it("of another client may lack what was too large to be remembered", () => {
    const parts = [
      { type: "image", data: null },
      { type: "text", text: null },
    ];
    for (const inputs of [{ image: null, instruction: [null, "x"] }, { parts }]) {
      const given = givenOf(EDIT, { inputs });
      expect(given.parts.find((part) => part.input === "image")?.media).toBeNull();
      expect(judge(EDIT, given)).toHaveProperty("input:image");
    }
    expect(givenOf(EDIT, {}).parts.map((part) => part.text)).toEqual(["", ""]);
    expect(givenOf(EDIT, { inputs: { parts } }).parts.map((part) => part.text)).toEqual(["", ""]);
  });

  it("of another client may have data: addresses", () => {
    const given = givenOf(EDIT, { inputs: { image: `data:image/jpeg;base64,${PNG}`, instruction: "x" } });
    expect(given.parts[0]?.media).toMatchObject({ mime: "image/jpeg", data: PNG });
  });
});

it("knows media by their first letters", () => {
  expect(
    [PNG, "/9j/4AAQ", "UklGRiQAAABXQVZF", "UklGRiQAAABXRUJQ", "AAAA", "AAAAIGZ0eXBpc29t", "GkXfo58="].map(mimeOf),
  ).toEqual([
    "image/png",
    "image/jpeg",
    "audio/wav",
    "image/webp",
    "application/octet-stream",
    "video/mp4",
    "video/webm",
  ]);
});

it("gives a slider where it can be set well", () => {
  const of = (type: "integer" | "number", min: number | null, max: number | null) =>
    sliderOf({ type, min, max, default: 1, choices: [], description: "" });
  expect(of("number", 0, 1)).toEqual({ min: 0, max: 1, step: 0.01 });
  expect(of("number", 1, 20)?.step).toBe(0.05);
  expect(of("integer", 0, 200)?.step).toBe(1);
  expect(of("integer", 0, 100_000)).toBeNull();
  expect(of("number", null, 1)).toBeNull();
});
