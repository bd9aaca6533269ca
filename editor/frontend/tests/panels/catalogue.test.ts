import { afterEach, describe, expect, it, vi } from "vitest";

afterEach(() => vi.unstubAllGlobals());

describe("the catalogue", () => {
  it("is loaded once, and asked for again after a failure", async () => {
    vi.resetModules();
    const { loadCatalogue, familyOf, title } = await import("../../src/catalogue/catalogue");
    const answer = vi.fn().mockRejectedValueOnce(new TypeError("no network"));
    vi.stubGlobal("fetch", answer);
    await expect(loadCatalogue()).rejects.toMatchObject({ code: "offline" });
    answer.mockImplementation(() => Promise.resolve(new Response('[{"name":"bagel.vae_decoder"}]')));
    const [first, second] = await Promise.all([loadCatalogue(), loadCatalogue()]);
    expect(second).toBe(first);
    expect(answer).toHaveBeenCalledTimes(2);
    const found = first["bagel.vae_decoder"]!;
    expect([familyOf(found), title(found)]).toEqual(["bagel", "vae decoder"]);
  });
});
