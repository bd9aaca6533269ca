// @vitest-environment jsdom
import { expect, it } from "vitest";
import { preferences, setDensity } from "../../src/store/preferences";

const KEY = "walkgraph:preferences";

it("follows what another tab has chosen, and keeps it at the next choice here", () => {
  setDensity("comfortable");
  const theirs = { ...JSON.parse(localStorage.getItem(KEY)!), states: true, density: "compact" };
  localStorage.setItem(KEY, JSON.stringify(theirs));
  dispatchEvent(new StorageEvent("storage", { key: "walkgraph:theme" }));
  expect(preferences.getState().density).toBe("comfortable");
  dispatchEvent(new StorageEvent("storage", { key: KEY }));
  expect(preferences.getState()).toMatchObject({ states: true, density: "compact" });
  setDensity("comfortable");
  expect(JSON.parse(localStorage.getItem(KEY)!)).toMatchObject({ states: true, density: "comfortable" });
});
