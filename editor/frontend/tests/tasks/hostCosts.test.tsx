// @vitest-environment jsdom
import { flushSync } from "react-dom";
import { createRoot } from "react-dom/client";
import { expect, it } from "vitest";
import { HostCosts } from "../../src/tasks/simulator/SimulatorResult";

it("says what goes from host to host, and how long that takes", () => {
  const host = document.createElement("div");
  const root = createRoot(host);
  flushSync(() => root.render(<HostCosts costs={[]} />));
  expect(host.textContent).toBe("");
  const cost = { pointer: "/walks/w/edges/0", what: "a.x -> b.y", source: "near", target: "far", times: 4 };
  const known = { ...cost, bytes: 4_000_000, seconds: 0.0164 };
  const unknown = { ...cost, times: null, bytes: null, seconds: null };
  flushSync(() => root.render(<HostCosts costs={[known, unknown]} />));
  expect(host.textContent).toContain("2 things go between hosts");
  expect(host.textContent).toContain("a.x -> b.ynear → far × 4, 3.8 MiB");
  expect(host.textContent).toContain("at least 16 ms");
  expect(host.textContent).toContain("near → far × ?");
  flushSync(() => root.unmount());
});
