// @vitest-environment jsdom
import { flushSync } from "react-dom";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SettingsPage } from "../../src/shell/pages/SettingsPage";
import { preferences } from "../../src/store/preferences";
import type { EnvironmentShown } from "../../src/messages/answers";

const FOUND: EnvironmentShown = {
  version: "1.2.3",
  settings: [
    { name: "WALKGRAPH_TOKEN", value: "", source: "set", secret: true, meaning: "The bearer token." },
    { name: "WALKGRAPH_PORT", value: "8421", source: "default", secret: false, meaning: "Port to listen on." },
    { name: "WALKGRAPH_URL", value: "", source: "default", secret: false, meaning: "The service." },
  ],
  hosts: ["api.example"],
  plugins: [
    { name: "here", installed: true },
    { name: "away", installed: false },
  ],
};

let root: Root;
let host: HTMLElement;

async function open(answer: () => Response): Promise<void> {
  vi.stubGlobal("fetch", async () => answer());
  host = document.body.appendChild(document.createElement("div"));
  root = createRoot(host);
  flushSync(() => root.render(<SettingsPage />));
  await vi.waitFor(() => expect(host.querySelector("tbody, [role=alert]")).not.toBeNull());
}

beforeEach(() => {
  localStorage.clear();
  preferences.setState({ density: "comfortable" });
});

afterEach(() => {
  flushSync(() => root.unmount());
  host.remove();
  vi.unstubAllGlobals();
});

function cells(name: string): string[] {
  const row = [...host.querySelectorAll("tbody tr")].find((found) => found.textContent.includes(name));
  return [...(row?.querySelectorAll("td") ?? [])].map((cell) => cell.textContent.trim());
}

it("shows what the operator has set, with its meaning, and hides secrets", async () => {
  await open(() => new Response(JSON.stringify(FOUND)));
  expect(cells("WALKGRAPH_TOKEN")).toEqual(["WALKGRAPH_TOKEN", "set, not shown set", "The bearer token."]);
  expect(cells("WALKGRAPH_PORT")).toEqual(["WALKGRAPH_PORT", "8421", "Port to listen on."]);
  expect(cells("WALKGRAPH_URL")[1]).toBe("none");
  expect(host.textContent).toContain("api.example");
  expect([...host.querySelectorAll("li")].map((item) => item.textContent.trim())).toContain("away not installed");
});

it("says who may see them, and shows the rest to everybody", async () => {
  const problem = { title: "Forbidden", code: "refused", detail: "a key with `admin` is needed" };
  await open(() => new Response(JSON.stringify(problem), { status: 403 }));
  expect(host.querySelector("[role=alert]")?.textContent).toContain("scope “admin”");
  expect(host.querySelectorAll("fieldset")).toHaveLength(2);
  expect(host.querySelectorAll("kbd").length).toBeGreaterThan(20);
});

it("keeps the density", async () => {
  await open(() => new Response(JSON.stringify(FOUND)));
  const compact = [...host.querySelectorAll("label")].find((label) => label.textContent === "Compact");
  flushSync(() => compact?.click());
  expect(preferences.getState().density).toBe("compact");
  expect(JSON.parse(localStorage.getItem("walkgraph:preferences") ?? "{}")).toMatchObject({ density: "compact" });
  expect(compact?.querySelector("input")?.checked).toBe(true);
});
