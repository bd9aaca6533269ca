// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { chooseTheme, chosenTheme } from "../../src/shell/host/theme";

beforeEach(() => localStorage.clear());
afterEach(() => vi.restoreAllMocks());

test("a browser that has chosen nothing has the system's theme", () => {
  expect(chosenTheme()).toBe("System");
});

test("a choice is kept, and told to the page's script once it is", () => {
  const heard = vi.fn(() => expect(chosenTheme()).toBe("Dark"));
  addEventListener("walkgraph:theme", heard, { once: true });
  chooseTheme("Dark");
  expect(heard).toHaveBeenCalledOnce();
  chooseTheme("Light");
  expect(chosenTheme()).toBe("Light");
});

test("what is no theme counts as none", () => {
  localStorage.setItem("walkgraph:theme", "Purple");
  expect(chosenTheme()).toBe("System");
});

test("a browser that keeps nothing has the system's theme", () => {
  vi.spyOn(Storage.prototype, "getItem").mockImplementation(() => {
    throw new DOMException("denied", "SecurityError");
  });
  expect(chosenTheme()).toBe("System");
});
