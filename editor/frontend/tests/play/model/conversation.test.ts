import { describe, expect, it } from "vitest";
import {
  answered,
  conversationOf,
  kindsOf,
  takenBy,
  turnsOf,
  withMedia,
  withoutTurn,
  withPart,
  withRole,
  withTurn,
} from "../../../src/play/model/conversation";
import { fitted, fresh, givenOf, judge, renewed, request } from "../../../src/play/model/form";
import { callOf, snippet } from "../../../src/play/calls/snippets";
import { saidOf } from "../../../src/play/model/words";
import type { TurnShown } from "../../../src/play/model/conversation";
import type { Given, TaskShown } from "../../../src/play/model/types";
import { PNG } from "../tasks";

const form = (type: string) => ({ properties: { type: { const: type } } });
const turn = {
  properties: {
    role: { enum: ["system", "user", "assistant"] },
    content: { anyOf: [{ type: "string" }, { items: { oneOf: [form("image"), form("text")] } }] },
  },
  allOf: [
    {
      if: { properties: { role: { const: "assistant" } } },
      then: { properties: { content: { items: { properties: { type: { enum: ["text"] } } } } } },
    },
  ],
};

const CHAT: TaskShown = {
  deployment: "shapes",
  name: "chat",
  label: "Chat",
  inputs: { messages: { modality: "messages", many: false, optional: false, description: "" } },
  outputs: ["text"],
  params: {},
  session: false,
  schema: { properties: { inputs: { properties: { messages: { items: turn } } } } },
};
const taken = takenBy(CHAT, "messages");
const media = { mime: "image/png", data: PNG, name: "a.png" };
const turns = (given: Given) =>
  turnsOf(given, "messages").map(
    ({ role, parts }) => `${role}: ${parts.map((part) => part.text || part.modality).join(", ")}`,
  );
const last = (given: Given) => turnsOf(given, "messages").at(-1) as TurnShown;
const typed = (given: Given, text: string): Given => ({
  ...given,
  parts: given.parts.map((part, index) => (index === given.parts.length - 1 ? { ...part, text } : part)),
});

describe("a conversation in a form", () => {
  it("takes what the schema says, texts first", () => {
    expect(conversationOf(CHAT)).toBe("messages");
    expect(taken.roles).toEqual(["system", "user", "assistant"]);
    expect(kindsOf(taken, "user")).toEqual(["text", "image"]);
  });

  it("offers a turn the parts that its role takes", () => {
    expect(kindsOf(taken, "assistant")).toEqual(["text"]);
    expect(kindsOf(taken, "system")).toEqual(taken.kinds);
  });

  it("begins with a turn of the user, and is needed", () => {
    const given = fresh(CHAT);
    expect(turns(given)).toEqual(["user: text"]);
    expect(judge(CHAT, given)).toEqual({ "input:messages": expect.stringContaining("conversation") });
    expect(judge(CHAT, typed(given, "hi"))).toEqual({});
  });

  it("grows by turns and parts, and loses them", () => {
    let given = typed(fresh(CHAT), "what?");
    given = withPart(given, last(given), "image");
    given = withTurn(given, "messages", "assistant", "a cat");
    expect(turns(given)).toEqual(["user: what?, image", "assistant: a cat"]);
    given = withRole(given, last(given), "system");
    expect(turns(given)).toEqual(["user: what?, image", "system: a cat"]);
    expect(turns(withoutTurn(given, last(given)))).toEqual(["user: what?, image"]);
    expect(judge(CHAT, given)).toEqual({});
  });

  it("goes on after an answer, without its empty parts", () => {
    let given = typed(fresh(CHAT), "what?");
    given = withPart(given, last(given), "image");
    expect(turns(answered(given, "messages", taken, "a cat"))).toEqual([
      "user: what?",
      "assistant: a cat",
      "user: text",
    ]);
    const mute = { ...taken, roles: ["user"] as const };
    expect(answered(given, "messages", mute, "a cat")).toBe(given);
  });

  it("puts a pasted picture into the last question", () => {
    const given = withMedia(typed(fresh(CHAT), "what?"), "messages", "image", media);
    expect(turns(given)).toEqual(["user: what?, image"]);
    const next = withMedia(withTurn(given, "messages", "assistant", "a cat"), "messages", "image", media);
    expect(turns(next)).toEqual(["user: what?, image", "assistant: a cat", "user: image"]);
    const place = withPart(typed(fresh(CHAT), "x"), last(typed(fresh(CHAT), "x")), "image");
    expect(withMedia(place, "messages", "image", media).parts.length).toBeGreaterThan(1);
  });
});

describe("the request of a conversation", () => {
  const given = answered(
    withMedia(typed(fresh(CHAT), "what?"), "messages", "image", media),
    "messages",
    taken,
    "a cat",
  );

  it("has the turns that say something", () => {
    const body = request(CHAT, typed(given, "sure?"));
    expect(body.inputs).toEqual({
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "what?" },
            { type: "image", mime: "image/png", data: PNG },
          ],
        },
        { role: "assistant", content: "a cat" },
        { role: "user", content: "sure?" },
      ],
    });
    expect((request(CHAT, given).inputs["messages"] as unknown[]).length).toBe(2);
    expect(saidOf(given)).toBe("what? · a.png · a cat");
  });

  it("comes back as a form, and survives a page", () => {
    const body = request(CHAT, typed(given, "sure?"));
    const again = renewed(fitted(CHAT, givenOf(CHAT, body)));
    expect(request(CHAT, again)).toEqual(body);
    expect(new Set(again.parts.map((part) => part.key)).size).toBe(again.parts.length);
  });

  it("is written in every language", () => {
    const texts = answered(typed(fresh(CHAT), "what?"), "messages", taken, "a cat");
    const call = (form: Given) =>
      callOf(CHAT, form, { "chat.completions": ["chat"] }, "http://h", { home: null, tokenFile: null });
    expect(snippet("curl", call(texts)).text).toContain('"content": "a cat"');
    expect(snippet("curl", call(given)).text).toContain('{"type":"image","frame":0}');
    expect(snippet("cli", call(texts)).text).toContain("--messages");
    expect(snippet("cli", call(given)).text).toMatch(/^# /);
    expect(snippet("python", call(given)).text).toContain('Path("image.png")');
    expect(snippet("python", call(given)).text).toContain('"role": "assistant"');
    expect(snippet("openai", call(given)).text).toContain("image_url");
    expect(snippet("openai", call(texts)).text).toContain('{"role": "assistant", "content": "a cat"}');
    expect(snippet("socket", call(given)).text).toContain('"frame": 0');
  });
});
