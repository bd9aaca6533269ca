import { describe, expect, it } from "vitest";
import { fresh } from "../../src/play/model/form";
import { callOf, languagesOf } from "../../src/play/calls/snippets";
import type { Given } from "../../src/play/model/types";
import { EDIT, PNG } from "./tasks";

describe("the call of a form", () => {
  const filled = (): Given => {
    const form = fresh(EDIT);
    const picture = { mime: "image/png", data: PNG, name: "x.png" };
    const parts = form.parts.map((part) => (part.input === "image" ? { ...part, media: picture } : part));
    return { ...form, parts, params: { steps: 12, scale: 0.5 }, seed: { text: "7", locked: true } };
  };
  const routes = { "images.edits": ["draw", "edit"], realtime: [] };
  const made = (form: Given, found: Record<string, string[]> = routes, task = EDIT) =>
    callOf(task, form, found, "http://h", { home: null, tokenFile: null });

  it("has its values, what differs from the defaults, and the routes that serve it", () => {
    const found = made(filled());
    expect(found.pieces.map(({ input }) => input)).toEqual(["image", "instruction"]);
    expect(found.params).toEqual({ steps: 12, seed: 7 });
    expect(found.makes).toBe("image");
    expect(found.openai).toEqual({ route: "images.edits", model: "shapes/edit" });
    expect(made(filled(), { "images.edits": ["edit"] }).openai?.model).toBe("shapes");
    expect(languagesOf(found)).toEqual(["curl", "python", "openai", "socket", "cli"]);
  });

  it("has no OpenAI where no route serves it, and a session where it keeps one", () => {
    const found = made(filled(), {}, { ...EDIT, session: true });
    expect(found.makes).toBeNull();
    expect(languagesOf(found)).toEqual(["curl", "python", "session", "cli"]);
  });

  it("edits where there is a picture, and draws where there is none", () => {
    const both = { "images.generations": ["edit"], "images.edits": ["edit"] };
    expect(made(filled(), both).openai?.route).toBe("images.edits");
    const bare = filled();
    const parts = bare.parts.filter(({ input }) => input !== "image");
    expect(made({ ...bare, parts }, both).openai?.route).toBe("images.generations");
  });

  it("tells the form's own wish to watch from a person's", () => {
    const preview = { type: "integer", default: 0, min: 0, max: 9, choices: [], description: "" } as const;
    const task = { ...EDIT, params: { preview_every: { ...preview, choices: [] } } };
    expect(made(fresh(task), {}, task)).toMatchObject({ params: {}, watching: { preview_every: 2 } });
    expect(made({ ...fresh(task), params: { preview_every: 3 } }, {}, task)).toMatchObject({
      params: { preview_every: 3 },
      watching: {},
    });
  });

  it("speaks with the voice of the form", () => {
    const voice = {
      type: "string",
      default: "tara",
      min: null,
      max: null,
      choices: ["tara", "leo"],
      description: "",
    } as const;
    const task = { ...EDIT, params: { voice: { ...voice, choices: ["tara", "leo"] } } };
    expect(made(fresh(task), {}, task).voice).toEqual({ name: "voice", value: "tara" });
    expect(made({ ...fresh(task), params: { voice: "leo" } }, {}, task).voice).toEqual({
      name: "voice",
      value: "leo",
    });
  });
});
