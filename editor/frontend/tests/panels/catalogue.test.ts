import { afterEach, describe, expect, it, vi } from "vitest";

afterEach(() => vi.unstubAllGlobals());

describe("the catalogue", () => {
  it("is asked for once at a time, and again for the next graph or after a failure", async () => {
    vi.resetModules();
    const { loadCatalogue, familyOf, title } = await import("../../src/catalogue/catalogue");
    const answer = vi.fn().mockRejectedValueOnce(new TypeError("no network"));
    vi.stubGlobal("fetch", answer);
    await expect(loadCatalogue()).rejects.toMatchObject({ code: "offline" });
    answer.mockImplementation(() => Promise.resolve(new Response('[{"name":"bagel.vae_decoder"}]')));
    const [first, second] = await Promise.all([loadCatalogue(), loadCatalogue()]);
    expect(second).toBe(first);
    expect(answer).toHaveBeenCalledTimes(2);
    expect(answer.mock.calls[1]![0]).toContain("/api/v1/components?tasks=true");
    await loadCatalogue();
    expect(answer).toHaveBeenCalledTimes(3);
    const found = first["bagel.vae_decoder"]!;
    expect([familyOf(found), title(found)]).toEqual(["bagel", "vae decoder"]);
  });

  it("names a task after its graph, and knows the way there", async () => {
    const { calledGraph, editorOf, familyOf, title } = await import("../../src/catalogue/catalogue");
    expect([familyOf("shapes/text_to_image"), title("shapes/text_to_image")]).toEqual(["shapes", "text to image"]);
    expect([calledGraph("shapes/text_to_image"), calledGraph("bagel.vit")]).toEqual(["shapes", null]);
    expect(editorOf("a b")).toBe("editor?graph=a%20b");
  });
});
